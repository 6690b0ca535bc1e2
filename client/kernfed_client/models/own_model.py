"""A client's own model: trained on its rows alone, kept at the client, and never sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from kernfed.arrays import Array, Floats
from kernfed.features.spec import fingerprint
from kernfed.models.global_model import GlobalModel
from kernfed_client.data.local_job import LocalJob
from kernfed_client.models.private_model import PrivateModel, Scorer

log = structlog.get_logger(__name__)


def keep_own_model(
    job: LocalJob, weights: Array, offset: Array | None = None, facts: Mapping[str, Any] | None = None
) -> Path:
    """Write a model of this client, from which it can predict with `kernfed predict`.

    Args:
        job: With features mapped, and centred where the job has an intercept.
        weights: On centred features, shape (M, C).
        offset: An intercept of the model's own beside the pooled means, shape (C,).
        facts: What `job` in `model.json` tells beside the job and the client, JSON values.

    Returns:
        The folder with `model.safetensors` and `model.json`, below the client's state folder.
    """
    model = GlobalModel(
        task=job.task,
        feature_names=job.schema.features,
        target=job.schema.target,
        classes=job.classes,
        mean=job.mean,
        deviation=job.deviation,
        spec=job.features,
        fingerprint=fingerprint(job.features),
        weights=weights,
        feature_mean=job.feature_mean,
        target_mean=job.target_mean if offset is None else job.target_mean + offset,
        job=_about(job, facts),
        columns=job.schema.columns,
    )
    return keep(job, model)


def private_model(
    job: LocalJob,
    kind: str,
    arrays: Mapping[str, Array],
    details: Mapping[str, Any],
    scorer: Scorer,
    facts: Mapping[str, Any] | None = None,
    *,
    misfits: Floats | None = None,
) -> PrivateModel:
    """A model of this client of any kind, from which it can predict with `kernfed-client predict` once it is saved.

    Args:
        job: With rows scaled.
        kind: Which sort of model; `kernfed_client.models.kept_models` reads it.
        arrays: What it is made of.
        details: What it is made of, JSON values.
        scorer: Scores of standardised rows.
        facts: What `job` in `model.json` tells beside the job and the client, JSON values.
        misfits: Of rows kept apart; see `PrivateModel`.
    """
    return PrivateModel(
        kind=kind,
        task=job.task,
        feature_names=job.schema.features,
        target=job.schema.target,
        classes=job.classes,
        mean=job.mean,
        deviation=job.deviation,
        arrays=arrays,
        details=details,
        scorer=scorer,
        job=_about(job, facts),
        misfits=misfits,
        columns=job.schema.columns,
    )


def keep(job: LocalJob, model: GlobalModel | PrivateModel) -> Path:
    """Write the client's own model; returns its folder, below the client's state folder."""
    folder = job.folder / "model"
    model.save(folder, durable=job.durable)
    log.info("own model kept", path=str(folder), kind=model.kind if isinstance(model, PrivateModel) else "linear")
    return folder


def _about(job: LocalJob, facts: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"job_id": job.job_id, "client": job.client, "missing": job.schema.missing.value, **(facts or {})}
