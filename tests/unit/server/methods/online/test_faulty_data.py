"""Clients whose data are faulty, while nobody else has rows."""

from __future__ import annotations

from typing import cast

import pytest

from kernfed.federation.cohort import Cohort
from kernfed.federation.exchange import Fault
from kernfed_server.jobs.run import Run
from kernfed_server.methods.online import faulty_data
from kernfed_server.methods.online.faulty_data import FaultyData


class Round:
    """A cohort's faults in a round."""

    def __init__(self) -> None:
        self.faults = {"a": Fault("INVALID_DATA", "no such column"), "b": Fault("STEP_FAILED", "unexpected")}

    def forgive(self, client: str) -> None:
        del self.faults[client]


@pytest.mark.parametrize(("pause_s", "left"), [(0.0, {"b"}), (3600.0, {"a", "b"})])
def test_only_faulty_data_are_looked_at_again(monkeypatch: pytest.MonkeyPatch, pause_s: float, left: set[str]) -> None:
    """A client whose file may have been corrected is asked again in the same round, after a pause; others are not."""
    monkeypatch.setattr(faulty_data, "_FIRST_PAUSE_S", pause_s)
    cohort = Round()
    faulty = FaultyData(cast("Cohort", cohort), cast("Run", None))
    faulty.look()
    assert cohort.faults.keys() == left
