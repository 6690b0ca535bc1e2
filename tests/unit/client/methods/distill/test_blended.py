"""Models that distillation leaves at a client tell how far the truth may lie from their predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import ConfigError
from kernfed.models.predictions import write_predictions
from kernfed_client.models.kept_models import load_kept_model
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import simulate
from kernfed_testing.methods.distill import made_job, own_states, target

NAMES = ["x0", "x1", "x2"]


def kept(folder: Path, keep: str, num_clients: int = 3) -> tuple[list[Path], dict[str, Rows]]:
    """Folders of models of clients with 60 rows, and their rows: all noise alike."""
    random, rows = np.random.default_rng(8), {}
    for i in range(num_clients):
        x = random.random((460, 3))
        y = target(x) + 0.3 * random.normal(size=460)
        rows[f"site-{i}"] = Rows(x[:60], y[:60], x[60:], y[60:])
    job, text, files = made_job(folder, keep=keep, kernel="gaussian", lengthscale=0.5, intercept=True, rounds=2)
    done = simulate(job, own_states(rows, folder), text=text, files=files)
    assert done.error is None, done.error
    return [folder / name / "model" for name in rows], rows


@pytest.mark.parametrize("keep", ["blend", "better"])
def test_as_many_test_rows_lie_between_the_bounds_as_are_asked_for(tmp_path: Path, keep: str) -> None:
    """Bounds are wider where the client has no rows; what a file says when it is read again is what is written."""
    folders, rows = kept(tmp_path, keep)
    covered = []
    for folder, own in zip(folders, rows.values(), strict=True):
        model, data = load_kept_model(folder), pd.DataFrame(own.x_test, columns=NAMES)
        data.loc[0] = 5.0  # far from all rows
        data.to_csv(tmp_path / "new.csv", index=False)
        write_predictions(model, tmp_path / "new.csv", tmp_path / "out.csv", coverage=0.8)
        told = pd.read_csv(tmp_path / "out.csv")
        covered.append(np.mean((told.lower <= own.y_test) & (own.y_test <= told.upper)))
        assert told.deviation[0] > 1.2 * told.deviation[1:].max()
    # The share of one client is Beta(49, 12): deviation 0.05; of three clients, and of 1,200 rows, 0.031 in all.
    assert abs(np.mean(covered) - 0.8) < 4 * 0.031


def test_a_model_without_rows_kept_apart_says_so(tmp_path: Path) -> None:
    """A model that was kept without a comparison predicts, but tells no coverage."""
    folder = kept(tmp_path, "distilled", 2)[0][0]
    (tmp_path / "new.csv").write_text("x0,x1,x2\n0.1,0.2,0.3\n")
    model = load_kept_model(folder)
    assert write_predictions(model, tmp_path / "new.csv", tmp_path / "out.csv").num_rows == 1
    with pytest.raises(ConfigError, match="no rows were kept apart"):
        write_predictions(model, tmp_path / "new.csv", tmp_path / "out.csv", coverage=0.8)
