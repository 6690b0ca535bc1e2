"""The methods on ridge problems that have nothing but a ridge to set."""

from __future__ import annotations

from kernfed_server.methods.base import Workflow, local_ridge
from kernfed_server.methods.ridge import dkrr, local

WORKFLOWS = {
    "local": Workflow(local.run, local_ridge, weights=lambda *_: ({}, "")),
    "dkrr": Workflow(dkrr.run, local_ridge),
}
