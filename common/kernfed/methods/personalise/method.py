"""The method `personalise`."""

from __future__ import annotations

from kernfed.federation.messages.base import requests_in
from kernfed.methods.base import FIXED, Method, table
from kernfed.methods.personalise import (
    component_messages,
    crossfit_messages,
    embedding_messages,
    messages,
    training_messages,
)
from kernfed.methods.personalise.kept import ARTIFACT, pack_folder
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed.methods.ridge.messages import NewtonStartRequest


def _unscaled(settings: PersonaliseSettings) -> str:
    if settings.noise is None:
        return ""
    return (
        "method.noise needs rows that the clients do not scale: the scales are moments of all rows without noise, "
        "and one row moves the embedding through them by far more than the sensitivity 2 sqrt(2)/rows"
    )


METHODS = table(
    Method(
        PersonaliseSettings,
        rounds=lambda s: 1 if s.trainer == "exact" else s.rounds,
        files=lambda s: (s.from_job,) if s.from_job else (),
        pack=pack_folder,
        kept=ARTIFACT,
        unscaled=_unscaled,
        steps=(
            *requests_in(embedding_messages, messages, crossfit_messages, training_messages, component_messages),
            NewtonStartRequest,
        ),
        fixed=FIXED,
        network=lambda s: s.network,
        schema={"clipped": False},
    )
)
