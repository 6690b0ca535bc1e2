"""The coordinator's half of every method, by name. A new method adds one line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernfed.cohort import Cohort
from kernfed.messages.base import Array
from kernfed_server.artifacts import Model
from kernfed_server.run import Run
from kernfed_server.workflows import distill, dkrr, fedavg, fedprox, local, newton, probe


@dataclass(frozen=True, slots=True)
class Workflow:
    """A method at the coordinator."""

    run: Callable[[Any, Any, Cohort, Run], Awaitable[Array | Model | None]]
    """(setup, settings, cohort, run) -> weights on centred features, shape (M, C), or something that saves itself;
    None: there is no global model."""
    needs_data: bool = True
    """Whether the clients' data are prepared first; else `setup` is None."""
    maps_features: bool = True
    """Whether the method computes with the feature map, on which the local ridge models are then measured too."""


WORKFLOWS: Mapping[str, Workflow] = {
    "local": Workflow(local.run),
    "dkrr": Workflow(dkrr.run),
    "newton": Workflow(newton.run),
    "fedavg": Workflow(fedavg.run),
    "fedprox": Workflow(fedprox.run),
    "distill": Workflow(distill.run, maps_features=False),
    "probe": Workflow(probe.run, needs_data=False),
}
