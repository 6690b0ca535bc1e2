"""The heads that a client trains by itself, with its own preparation and with that of all clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench, make_job


def rows_of(sign: float, scale: float, seed: int) -> Rows:
    """A client whose classes lie on either side of a point of its own, in units of its own."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(160, 3))
    y = (sign * x[:, 0] + 0.5 * random.normal(size=160) > 0.5 * sign).astype(int)
    return Rows(scale * x[:60], y[:60], scale * x[60:], y[60:])


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_a_client_alone_is_measured_with_own_and_with_shared_scales(tmp_path: Path, loss: str) -> None:
    """Both heads are of its rows only; alone in its job, they are the same head, and that is the global one."""
    rows = {f"c{i}": rows_of(1.0 if i % 2 else -1.0, 1.0 + 3.0 * (i == 2), i) for i in range(4)}
    job = make_job("newton", task="binary", top="local_shared = true", loss=loss, raise_ridge=False, rounds=20)
    together = bench(rows, tmp_path / "all", ("no", "yes")).run(job).metrics[-1]
    assert set(together.pooled) == {"global", "local", "local-shared"}
    assert together.pooled["local"]["accuracy"] > together.pooled["global"]["accuracy"] + 0.1
    assert together.pooled["local-shared"]["accuracy"] > together.pooled["global"]["accuracy"] + 0.1
    assert together.clients["c2"]["local"] != together.clients["c2"]["local-shared"]
    single = bench({"c2": rows["c2"]}, tmp_path / "one", ("no", "yes")).run(job).metrics[-1]
    alone = single.clients["c2"]
    for metric, value in alone["local"].items():
        assert alone["local-shared"][metric] == pytest.approx(value, rel=1e-3, abs=1e-3)
        assert together.clients["c2"]["local"][metric] == pytest.approx(value, rel=1e-3, abs=1e-3)
