"""Small networks on the columns as models that a client keeps: their file's details, and scores from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.tasks import TASKS
from kernfed.models.network_spec import NetworkKind, NetworkSpec, layout
from kernfed.tensors.networks import dtype_of, scores
from kernfed_client.data.local_job import LocalJob

NETWORK = "personal-network"
"""Kind of the model that is kept; `kernfed_client.models.kept_models` reads it."""


def network_scorer(arrays: Any, details: Any) -> Any:
    """A scorer of standardised rows for `kernfed_client.models.private_model`.

    Args:
        arrays: `parameters` (P,), `target_mean` (C,), `target_deviation` (C,).
        details: `network`: the fields of a `NetworkSpec`.
    """
    facts = dict(details["network"])
    facts["widths"], facts["image"] = tuple(facts["widths"]), tuple(facts["image"])

    spec = NetworkSpec(**{**facts, "kind": NetworkKind(facts["kind"]), "task": LearningTask(facts["task"])})

    def score(x: Floats, device: str) -> Floats:
        kind = dtype_of(spec)
        parameters = torch.as_tensor(np.asarray(arrays["parameters"])[None], dtype=kind, device=device)
        with torch.no_grad():
            parts = [
                scores(spec, parameters, torch.as_tensor(rows, dtype=kind, device=device))[0].double().cpu().numpy()
                for rows in np.array_split(x, max(1, len(x) // 4096))
            ]
        found: Floats = np.concatenate(parts)
        if not TASKS[spec.task].has_classes:
            found = found * arrays["target_deviation"] + arrays["target_mean"]
        return found

    return score


def network_details(spec: NetworkSpec) -> dict[str, Any]:
    """Fields of a specification as JSON values."""
    return {
        "kind": spec.kind.value,
        "task": spec.task.value,
        "num_columns": spec.num_columns,
        "num_outputs": spec.num_outputs,
        "widths": list(spec.widths),
        "image": list(spec.image),
        "num_parameters": spec.num_parameters,
        "batch_norm": spec.batch_norm,
    }


def check_network(job: LocalJob, spec: NetworkSpec) -> None:
    """Check that a network fits this client's columns, outputs and task.

    Raises:
        ConfigError: It does not.
    """
    layout(spec)
    if (spec.num_columns, spec.num_outputs, spec.task) != (job.x_train.shape[1], job.num_outputs, job.task):
        raise ConfigError(
            f"the network is for {spec.num_columns} columns, {spec.num_outputs} outputs and {spec.task}; this client "
            f"has {job.x_train.shape[1]}, {job.num_outputs} and {job.task}"
        )
