"""The parts of every model of a job: the agreement before round 1, and the facts of the job."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel

from kernfed.arrays import Array
from kernfed.maths.losses import Link
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.start.preparation import Setup


def job_facts(setup: Setup, method: BaseModel) -> dict[str, Any]:
    """Origin of a model, for its `model.json`: JSON values only."""
    return {
        "method": method.model_dump(mode="json"),
        "seed": setup.schema.seed,
        "missing": setup.schema.missing.value,
        "clients": sorted(setup.agreed.num_rows),
        "kernfed": version("kernfed"),
    }


def agreed(setup: Setup) -> dict[str, Any]:
    """Arguments that models of every kind take: columns, classes and scales."""
    return {
        "task": setup.schema.task,
        "feature_names": setup.schema.features,
        "target": setup.schema.target,
        "classes": setup.agreed.classes,
        "mean": setup.agreed.mean,
        "deviation": setup.agreed.deviation,
        "columns": setup.schema.columns,
    }


def feature_model(
    setup: Setup, weights: Array, facts: dict[str, Any], *, target_mean: Array | None = None, link: Link = Link.IDENTITY
) -> GlobalModel:
    """A model that is linear in the centred features.

    Args:
        setup: What was agreed.
        weights: Shape (M, C).
        facts: From `job_facts`.
        target_mean: Added to predictions, shape (C,); None: the pooled mean of the targets.
        link: From scores to predictions.
    """
    return GlobalModel(
        **agreed(setup),
        spec=setup.agreed.spec,
        fingerprint=setup.agreed.fingerprint,
        weights=weights,
        feature_mean=setup.agreed.feature_mean,
        target_mean=setup.agreed.target_mean if target_mean is None else target_mean,
        link=link,
        job=facts,
    )
