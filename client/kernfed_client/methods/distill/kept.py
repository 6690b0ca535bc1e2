"""Scores from the models that distillation leaves at a client, by the kind that their file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernfed_client.methods.distill.blended import KIND, blend_scorer
from kernfed_client.methods.distill.learner import kernel_scorer
from kernfed_client.methods.distill.networks import module_scorer
from kernfed_client.models.private_model import Scorer


def _sklearn_scorer(facts: Mapping[str, Any]) -> Scorer:
    from kernfed_client.methods.distill.sklearn_models import sklearn_scorer  # noqa: PLC0415  # loads scikit-learn

    return sklearn_scorer(facts["task"], facts["arrays"], facts["details"])


SCORERS: dict[str, Callable[[Mapping[str, Any]], Scorer]] = {
    "kernel-ridge": lambda facts: kernel_scorer(facts["arrays"], facts["details"]),
    "scikit-learn": _sklearn_scorer,
    "network": lambda facts: module_scorer(facts["arrays"], facts["details"]),
    KIND: lambda facts: blend_scorer(facts, lambda kind, part: SCORERS[kind](part)),
}
