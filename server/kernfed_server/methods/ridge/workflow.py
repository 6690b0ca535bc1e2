"""The methods on ridge problems that have nothing but a ridge to set."""

from __future__ import annotations

from kernfed_server.jobs.start.rules import by_sums
from kernfed_server.methods.base import Workflow, local_ridge
from kernfed_server.methods.ridge import dkrr, local

WORKFLOWS = {
    "local": Workflow(local.run, local_ridge, weights=lambda *_: ({}, ""), alone=True),
    "dkrr": Workflow(dkrr.run, local_ridge, search=lambda _: by_sums),
}
