"""The coordinator's half of every method, by name."""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.methods import rooms
from kernfed_server.methods.base import Workflow

WORKFLOWS: Mapping[str, Workflow] = rooms.ByMethod("kernfed_server.methods", "workflow", "WORKFLOWS")
