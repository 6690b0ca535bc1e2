"""The methods on streams at the coordinator."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from kernfed.federation.cohort import Cohort
from kernfed_server.jobs.run import Model, Run
from kernfed_server.methods.base import Workflow
from kernfed_server.methods.online import baselines, kernels
from kernfed_server.methods.online.agreed import former_agreement
from kernfed_server.methods.online.opening import adapted


def _on_streams(run: Callable[[Any, Any, Cohort, Run], Awaitable[Model | None]]) -> Workflow:
    # Rows that come one by one are judged by the ranges agreed on, at the client and at the coordinator.
    return Workflow(
        run,
        adapt=lambda job, _: adapted(job),
        former=former_agreement,
        spread=lambda _: math.inf,
        weights=lambda *_: None,
    )


WORKFLOWS = {
    "online": _on_streams(kernels.run),
    "ofskl": _on_streams(baselines.run_ofskl),
    "ofmkl-avg": _on_streams(baselines.run_ofmkl_avg),
    "vm-kofl": _on_streams(baselines.run_vm_kofl),
    "em-kofl": _on_streams(baselines.run_em_kofl),
    "perfedavg": _on_streams(baselines.run_perfedavg),
}
