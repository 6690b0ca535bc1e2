"""Small networks on the columns as models that a client keeps: their file's details, and scores from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Array, Floats
from kernfed.errors import ConfigError
from kernfed.maths.tasks import TASKS
from kernfed.models.network_spec import NetworkSpec, layout, read_spec
from kernfed.models.tensors.predict import network_scores
from kernfed.tensors.networks import dtype_of
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.local_job import LocalJob
from kernfed_client.models.own_model import keep, private_model

NETWORK = "personal-network"
"""Kind of the model that is kept; `kernfed_client.models.kept_models` reads it."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnNetwork:
    """A network on this client's columns, with its parameters and the scale of its targets."""

    spec: NetworkSpec
    parameters: Array
    """(P,)."""
    target_mean: Floats
    """(C,); zeros for classes."""
    target_deviation: Floats
    """(C,); ones for classes."""

    def scores(self, job: LocalJob, rows: Floats | None = None) -> Floats:
        """Scores of standardised rows, (m, C); unset: of the client's test rows."""
        x = job.x_test if rows is None else rows
        scores: Floats = network_scorer(self._arrays(), self._details())(x, str(job.device))
        return scores

    def keep(self, job: LocalJob, facts: Mapping[str, Any] | None = None) -> None:
        """Keep it as the client's model; `facts` as of `private_model`."""
        arrays, details = self._arrays(), self._details()
        keep(job, private_model(job, NETWORK, arrays, details, network_scorer(arrays, details), facts))

    def _arrays(self) -> dict[str, Array]:
        parameters = np.ascontiguousarray(self.parameters, dtype=np.float64)
        return {
            "parameters": parameters,
            "target_mean": self.target_mean,
            "target_deviation": self.target_deviation,
        }

    def _details(self) -> dict[str, Any]:
        return {"network": asdict(self.spec)}


def training_rows(job: LocalJob, spec: NetworkSpec, mean: Floats, deviation: Floats) -> tuple[Tensor, Tensor]:
    """Standardised columns (n, d), and encoded targets less `mean` over `deviation` (n, C), for a network's training.

    Raises:
        ConfigError: The network does not fit this client.
    """
    check_network(job, spec)
    y = (TASKS[job.task].encode(job.targets_train, job.classes) - mean) / deviation
    kind, device = dtype_of(spec), job.device
    return torch.as_tensor(job.x_train, dtype=kind, device=device), torch.as_tensor(y, dtype=kind, device=device)


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


def refuse_few_of_network(job: LocalJob) -> None:
    """Refuse networks on the columns.

    Raises:
        PolicyError: They would tell of few rows, since the columns have few values.
    """
    refuse_few_alike(job, remedy="a method or trainer without networks")


def check_network(job: LocalJob, spec: NetworkSpec) -> None:
    """Check that a network fits this client's columns, outputs and task.

    Raises:
        ConfigError: It does not.
        PolicyError: It would tell of few rows, since the columns have few values.
    """
    refuse_few_of_network(job)
    layout(spec)
    if (spec.num_columns, spec.num_outputs, spec.task) != (job.x_train.shape[1], job.num_outputs, job.task):
        raise ConfigError(
            f"the network is for {spec.num_columns} columns, {spec.num_outputs} outputs and {spec.task}; this client "
            f"has {job.x_train.shape[1]}, {job.num_outputs} and {job.task}"
        )
