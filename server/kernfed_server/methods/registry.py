"""The coordinator's half of every method, by name. A new method adds one line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import Array
from kernfed.jobs.job_file import JobFile
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Model, Run
from kernfed_server.methods.distill import workflow as distill
from kernfed_server.methods.heads import rounds as head_rounds
from kernfed_server.methods.online import (
    baselines as online_baselines,
)
from kernfed_server.methods.online import (
    workflow as online,
)
from kernfed_server.methods.online.agreed import recall_setup
from kernfed_server.methods.online.opening import adapted
from kernfed_server.methods.personalise import workflow as personalise
from kernfed_server.methods.probe import workflow as probe
from kernfed_server.methods.reweight import workflow as reweight
from kernfed_server.methods.ridge import (
    dkrr,
    fedavg,
    fedprox,
    local,
    newton,
)


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
    columns_alone: Callable[[JobFile], bool] = lambda _: False
    """Whether a job, by its settings, does without the feature map after all."""
    adapt: Callable[[JobFile], JobFile] = lambda job: job
    """The job as its clients are prepared for it."""
    recall: Callable[[JobFile, Cohort, Run], Setup | None] = lambda _job, _cohort, _run: None
    """The agreement of an earlier life of the run; None: clients are asked, and the same comes out."""


def _on_streams(run: Callable[[Any, Any, Cohort, Run], Awaitable[Model | None]]) -> Workflow:
    return Workflow(run, maps_features=False, adapt=adapted, recall=recall_setup)


WORKFLOWS: Mapping[str, Workflow] = {
    "local": Workflow(local.run),
    "dkrr": Workflow(dkrr.run),
    "newton": Workflow(newton.run),
    "fedavg": Workflow(fedavg.run),
    "fedprox": Workflow(fedprox.run),
    "fedsophia": Workflow(head_rounds.run_fedsophia),
    "fednew": Workflow(head_rounds.run_fednew),
    "distill": Workflow(distill.run, maps_features=False),
    "online": _on_streams(online.run),
    "ofskl": _on_streams(online_baselines.run_ofskl),
    "ofmkl-avg": _on_streams(online_baselines.run_ofmkl_avg),
    "vm-kofl": _on_streams(online_baselines.run_vm_kofl),
    "em-kofl": _on_streams(online_baselines.run_em_kofl),
    "perfedavg": _on_streams(online_baselines.run_perfedavg),
    "personalise": Workflow(personalise.run),
    "reweight": Workflow(reweight.run, columns_alone=reweight.columns_alone),
    "probe": Workflow(probe.run, needs_data=False),
}
