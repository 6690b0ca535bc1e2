"""Small networks on the columns as models that a client keeps: their file's details, and scores from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.maths.tasks import TASKS
from kernfed.models.network_spec import NetworkSpec, layout, read_spec
from kernfed.models.tensors.predict import network_scores
from kernfed_client.data.local_job import LocalJob

NETWORK = "personal-network"
"""Kind of the model that is kept; `kernfed_client.models.kept_models` reads it."""


def network_scorer(arrays: Any, details: Any) -> Any:
    """A scorer of standardised rows for `kernfed_client.models.private_model`.

    Args:
        arrays: `parameters` (P,), `target_mean` (C,), `target_deviation` (C,).
        details: `network`: the fields of a `NetworkSpec`.
    """
    spec = read_spec(details["network"])

    def score(x: Floats, device: str) -> Floats:
        found = network_scores(x, spec, np.asarray(arrays["parameters"]), device)
        if not TASKS[spec.task].has_classes:
            found = found * arrays["target_deviation"] + arrays["target_mean"]
        return found

    return score


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
