"""The method `glm`."""

from __future__ import annotations

from kernfed.federation.messages.data import LearningTask
from kernfed.methods.base import Method, Needs, table
from kernfed.methods.glm.families import FamilyName
from kernfed.methods.glm.messages import GlmEndRequest, GlmStartRequest, GlmSumsRequest
from kernfed.methods.glm.settings import GlmSettings


def _check(settings: GlmSettings, task: LearningTask | None) -> None:
    family = settings.family_of(task)
    binary = family is FamilyName.BINOMIAL
    if binary != (task is LearningTask.BINARY) or task is LearningTask.CLASSIFICATION:
        wanted = "two classes" if binary else "numbers"
        other = "binary" if binary else "regression"
        raise ValueError(
            f'method.family = "{family}" is for a target of {wanted}, but data.task is "{task}"; set '
            f'data.task = "{other}", or choose another family'
        )
    if settings.offset and settings.offset == settings.weights:
        raise ValueError(
            f"method.offset and method.weights are both {settings.offset!r}; name two columns, or remove a key"
        )


METHODS = table(
    Method(
        GlmSettings,
        rounds=lambda s: s.rounds,
        needs=lambda _: Needs.COLUMNS,
        lengthscale=lambda _: 1.0,
        check=_check,
        columns=lambda s: {"offset": s.offset, "weights": s.weights},
        steps=(GlmStartRequest, GlmSumsRequest, GlmEndRequest),
        asks=lambda _: (GlmStartRequest, GlmSumsRequest, GlmEndRequest),
        fixed={name: name for name in ("family", "offset", "weights", "intercept")},
        all_rows=True,
    )
)
