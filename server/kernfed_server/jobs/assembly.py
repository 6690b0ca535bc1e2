"""The parts of every model of a job: the agreement before round 1, and the facts of the job."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from pydantic import BaseModel

from kernfed.arrays import Array
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, fingerprint, make_spec
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


def slopes_model(
    setup: Setup, facts: dict[str, Any], slopes: Mapping[str, float], *, without: str, at_zero: float | None, link: Link
) -> GlobalModel:
    """A model that is linear in the columns, in their own units.

    Args:
        setup: What was agreed.
        facts: From `job_facts`.
        slopes: By feature column; of others 0.
        without: A column that predictions do not need; empty: all are needed.
        at_zero: The score where all columns are 0; None: scores are 0 at the columns' means.
        link: From scores to predictions.
    """
    schema = setup.schema
    places = [j for j, name in enumerate(schema.features) if name != without]
    names = tuple(schema.features[j] for j in places)
    of_names = np.array([slopes.get(name, 0.0) for name in names])
    mean, deviation = setup.agreed.mean[places], setup.agreed.deviation[places]
    spec = make_spec(Kernel.LINEAR, FeatureForm.COSINE, len(names), 1.0, 0, 0)
    columns = tuple(plan for plan in schema.columns if plan.name != without)
    own = {"feature_names": names, "mean": mean, "deviation": deviation, "columns": columns}
    return GlobalModel(
        **agreed(setup) | own,
        spec=spec,
        fingerprint=fingerprint(spec),
        weights=(of_names * deviation)[:, None],
        feature_mean=np.zeros(len(names)),
        target_mean=np.array([0.0 if at_zero is None else at_zero + float(of_names @ mean)]),
        link=link,
        job=facts,
    )


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
