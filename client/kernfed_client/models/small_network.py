"""Small networks on the columns as models that a client keeps: their file's details, and scores from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kernfed.arrays import Array, Floats
from kernfed.errors import ConfigError
from kernfed.jobs.client_models import SiteNetworkSection
from kernfed.maths.tasks import TASKS
from kernfed.models.network_spec import NetworkSpec, check_spec, layout, read_spec, spec_facts
from kernfed.models.tensors.predict import network_scores
from kernfed.models.tensors.site_network import check_fits, load_site_network, make_site_network, own_network_seed
from kernfed.section import ACCEPTED
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
    module: nn.Module | None = None
    """Of this client's own, where the network is one."""

    def scores(self, job: LocalJob, rows: Floats | None = None) -> Floats:
        """Scores of standardised rows, (m, C); unset: of the client's test rows."""
        x = job.x_test if rows is None else rows
        return _scores(x, self.spec, self._arrays(), str(job.device), self.module)

    def keep(self, job: LocalJob, facts: Mapping[str, Any] | None = None) -> None:
        """Keep it as the client's model; `facts` as of `private_model`."""
        arrays = self._arrays()
        details: dict[str, Any] = {"network": spec_facts(self.spec)}
        if self.spec.is_own:
            section = job.file.networks[self.spec.name]
            details |= {
                "section": section.model_dump(mode="json"),
                "seed": own_network_seed(job.schema.seed, self.spec.name),
            }
        keep(job, private_model(job, NETWORK, arrays, details, network_scorer(arrays, details), facts))

    def _arrays(self) -> dict[str, Array]:
        parameters = np.ascontiguousarray(self.parameters, dtype=np.float64)
        return {
            "parameters": parameters,
            "target_mean": self.target_mean,
            "target_deviation": self.target_deviation,
        }


def load_own_network(job: LocalJob, name: str, num_columns: int, num_outputs: int) -> nn.Module:
    """The module that this client's file has under a name, on the job's device; made once.

    Raises:
        ConfigError: There is none, or it cannot be made, or does not fit.
    """

    def make() -> nn.Module:
        seed = own_network_seed(job.schema.seed, name)
        module = load_site_network(name, job.file.networks, num_columns, num_outputs, seed)
        return module.to(job.device)

    return job.memo(("own network", name, num_columns, num_outputs), make)


def module_of(job: LocalJob, spec: NetworkSpec) -> nn.Module | None:
    """The module of a network of one's own, once it was checked against this client's; None: kernfed builds it.

    Raises:
        ConfigError: The network does not fit this client, or not the module that its file names.
        PolicyError: It would tell of few rows, since the columns have few values.
    """
    check_network(job, spec, own=True)
    if not spec.is_own:
        return None
    module = load_own_network(job, spec.name, spec.num_columns, spec.num_outputs)
    check_fits(module, spec)
    return module


def training_rows(
    job: LocalJob, spec: NetworkSpec, mean: Floats, deviation: Floats, module: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """Standardised columns (n, d), and encoded targets less `mean` over `deviation` (n, C), for a network's training.

    Raises:
        ConfigError: The network does not fit this client.
    """
    check_network(job, spec, own=module is not None)
    y = (TASKS[job.task].encode(job.targets_train, job.classes) - mean) / deviation
    kind, device = dtype_of(spec, module), job.device
    return torch.as_tensor(job.x_train, dtype=kind, device=device), torch.as_tensor(y, dtype=kind, device=device)


def network_scorer(arrays: Any, details: Any) -> Any:
    """A scorer of standardised rows for `kernfed_client.models.private_model`.

    Args:
        arrays: `parameters` (P,), `target_mean` (C,), `target_deviation` (C,).
        details: `network`: the fields of a `NetworkSpec`.
    """
    spec, module = read_spec(details["network"]), None
    if spec.is_own:
        section = SiteNetworkSection.model_validate(details["section"], context={ACCEPTED: True})
        how = section, spec.num_columns, spec.num_outputs, details["seed"]
        module = make_site_network(f"the model's [networks.{spec.name}]", *how)
        check_fits(module, spec)

    def score(x: Floats, device: str) -> Floats:
        return _scores(x, spec, arrays, device, module)

    return score


def _scores(x: Floats, spec: NetworkSpec, arrays: Any, device: str, module: nn.Module | None) -> Floats:
    found = network_scores(x, spec, np.asarray(arrays["parameters"]), device, module)
    if not TASKS[spec.task].has_classes:
        found = found * arrays["target_deviation"] + arrays["target_mean"]
    return found


def refuse_few_of_network(job: LocalJob) -> None:
    """Refuse networks on the columns.

    Raises:
        PolicyError: They would tell of few rows, since the columns have few values.
    """
    refuse_few_alike(job, remedy="a method or trainer without networks")


def check_network(job: LocalJob, spec: NetworkSpec, *, own: bool = False) -> None:
    """Check that a network fits this client's columns, outputs and task.

    Args:
        job: Of this client.
        spec: The network.
        own: Whether it may be a module of one's own.

    Raises:
        ConfigError: It does not.
        PolicyError: It would tell of few rows, since the columns have few values.
    """
    refuse_few_of_network(job)
    if own:
        check_spec(spec)
    else:
        layout(spec)
    if (spec.num_columns, spec.num_outputs, spec.task) != (job.x_train.shape[1], job.num_outputs, job.task):
        raise ConfigError(
            f"the network is for {spec.num_columns} columns, {spec.num_outputs} outputs and {spec.task}; this client "
            f"has {job.x_train.shape[1]}, {job.num_outputs} and {job.task}"
        )
