"""A row whose answer never arrives is learned again, and counts once at the client and once at the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernfed.federation.in_process import InProcessExchange
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.state import State
from kernfed_server.methods.online.counted import Counted
from kernfed_testing.methods.online_clients import StreamClients, finding, stream_job, stream_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "statistics": {"method": "online", "num_frequencies": 4},
    "gradients": {"method": "online", "num_kernels": 5, "num_frequencies": 4},
    "vm-kofl": {"method": "vm-kofl", "num_kernels": 5, "num_frequencies": 4},
    "em-kofl": {"method": "em-kofl", "num_kernels": 5, "num_frequencies": 4},
    "perfedavg": {"method": "perfedavg", "hidden": 4},
}


class Losing(InProcessExchange):
    """Answers of c1 to some rounds are lost: it learned, and the round closes with the others."""

    def __init__(self, made: StreamClients, rounds: set[int], restart: StreamClients | None = None) -> None:
        super().__init__(STEPS, made.jobs)
        self.rounds = rounds
        self.restart = restart

    async def ask(self, call: Any) -> Any:
        found = dict(await super().ask(call))
        if call.request.once and call.round_num in self.rounds:
            found.pop("c1", None)
            if self.restart is not None:
                self.restart.restart("c1")
        return found


@pytest.mark.parametrize("killed", [False, True], ids=["", "and the client is killed"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_answer_that_is_lost_costs_no_row(tmp_path: Path, variant: str, killed: bool) -> None:
    """Coordinator and client count every row once, though two rounds in a row closed without the answer."""
    made = StreamClients(tmp_path, {f"c{i}": stream_rows(16, i) for i in range(3)})
    job = stream_job(**VARIANTS[variant], metrics_every=1000, cohort="min_fraction = 0.3")
    journal = MemoryJournal()
    made.run(job, journal=journal, exchange=Losing(made, {1, 5, 6}, made if killed else None))
    assert journal.last is not None
    assert int(journal.last.state["num_rows"][0]) == 48
    assert {name: c["rows"] for name, c in finding(journal)["clients"].items()} == {"c0": 16, "c1": 16, "c2": 16}


def test_a_checkpoint_of_before_does_not_say_who_counted() -> None:
    """Clients are then asked as before, until their rows have counted once."""
    assert Counted(None).uncounted_from("a") == 1
    former = Counted(State(Checkpoint(3, {}).state))
    assert former.uncounted_from("a") == 0
    former.add(["a"], 4)
    assert former.uncounted_from("a") == 5
    again = Counted(State(former.to_arrays()))
    assert (again.uncounted_from("a"), again.uncounted_from("b")) == (5, 1)
