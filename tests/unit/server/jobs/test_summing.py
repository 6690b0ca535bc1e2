"""Rounds that are averaged as secure sums, on clients in this process, with masks and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply
from kernfed.jobs.secure_sum_section import SecureSumSection
from kernfed.pki.identity import Identity, Role
from kernfed_client.sums.once import Once
from kernfed_client.sums.site import Sums, SumSeats, SumSite
from kernfed_testing.identities import make_identities
from kernfed_testing.in_process import JOB_ID, bench, make_job, regression_rows

SIZES = {"ant": 40, "bee": 36, "cat": 44, "dog": 38}
SECURE = '\n[privacy]\nsums = "secure"'
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("fedavg", {"begin": "dkrr", "batch_size": 16}),
    ("fedprox", {"begin": "dkrr"}),
    ("newton", {"ridge": 0.1}),
]
SUMS = {
    "fedavg": {"ridge.masked_solve", "fedavg.curvature", "fedavg.masked_update", "newton.masked_gradient"},
    "fedprox": {"ridge.masked_solve", "fedprox.masked_update", "newton.masked_gradient"},
    "newton": {"newton.masked_start", "newton.masked_gradient", "newton.masked_step", "newton.masked_product"},
}
"""Steps of rounds."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    ids = make_identities(tmp_path_factory.mktemp("pki"))
    return {name: ids.make(Role.CLIENT, name) for name in SIZES}


def sites(folders: dict[str, Path], state: Path) -> Callable[[str], Sums]:
    """Each client's secure sums under masks."""

    def of(name: str) -> Sums:
        once = Once(state / f"once-{name}")
        return SumSite(lambda: Identity.load(folders[name]), SecureSumSection(), {}, once).of_job(JOB_ID)

    return of


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_sums_are_those_in_the_clear(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    """Model and certificate are those of the same job in the clear, but for the rounding of fixed point."""
    secure, clear = (
        bench(regression_rows(SIZES), tmp_path / str(i)).run(
            make_job(method, rounds=3, frequencies=10, features=privacy, **settings)
        )
        for i, privacy in enumerate((SECURE, ""))
    )
    assert np.abs(secure.weights - clear.weights).max() < 1e-9
    assert secure.notes[-1] == clear.notes[-1]
    asked = {e.step for e in secure.journal.events if e.kind is EventKind.STEP_ASKED}
    assert {s for s in asked if not s.startswith(("data.", "evaluation."))} == SUMS[method]


def test_a_killed_run_comes_to_the_bits_of_one_without_masks(tmp_path: Path, folders: dict[str, Path]) -> None:
    """A client misses rounds 2 and 3, and the coordinator is killed in round 3: that sum is over the same again."""
    job = make_job("fedavg", rounds=3, frequencies=10, features=SECURE, begin="dkrr", batch_size=16)
    rows, away = regression_rows(SIZES), {"bee": range(2, 4)}
    whole = bench(rows, tmp_path / "open", away=away).run(job)
    masked = sites(folders, tmp_path)
    first = bench(rows, tmp_path / "masked", away=away, sums=masked).run(job, stop_before=3)
    assert first.stopped
    kept = first.journal.last
    assert kept is not None
    names = [name for name in kept.state if name.startswith("run.agreed.secure sum ")]
    assert {name.split()[2] for name in names} == {"3"}  # rounds before it are forgotten
    second = bench(rows, tmp_path / "masked", sums=masked).run(job, resumed=kept)  # all clients are there
    assert second.weights.tobytes() == whole.weights.tobytes()


def test_newton_waits_for_all_and_tries_again(tmp_path: Path, folders: dict[str, Path]) -> None:
    """A client starts again within a sum, and the coordinator is killed: the bits are those without masks."""
    job = make_job("newton", rounds=3, frequencies=10, features=SECURE, ridge=0.1)
    rows, masked = regression_rows(SIZES), sites(folders, tmp_path)
    whole = bench(rows, tmp_path / "open").run(job)
    restarts = ["bee"]

    def restart(reply: Reply) -> Reply:
        for name in restarts:
            first.jobs[name].memory(SumSeats).sums = masked(name)
        restarts.clear()
        return reply

    first = bench(rows, tmp_path / "masked", sums=masked, tamper={("ant", "newton.masked_step"): restart})
    killed = first.run(job, stop_before=3)
    assert killed.stopped
    assert not restarts
    [failed] = [e for e in killed.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert (failed.client, failed.reason) == ("bee", "SECURE_SUM_FAILED")
    second = bench(rows, tmp_path / "masked", sums=masked).run(job, resumed=killed.journal.last)
    assert second.weights.tobytes() == whole.weights.tobytes()


def test_newton_ends_without_a_client(tmp_path: Path, folders: dict[str, Path]) -> None:
    """A client that is gone for good ends the job, and no sum is formed without it."""
    job = make_job("newton", rounds=3, frequencies=10, features=SECURE, ridge=0.1)
    gone = bench(regression_rows(SIZES), tmp_path, sums=sites(folders, tmp_path), away={"bee": 2})
    with pytest.raises(KernfedError, match="summed over all clients, and bee did not answer"):
        gone.run(job)
