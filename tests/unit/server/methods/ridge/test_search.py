"""The ridge by rows that clients keep apart: found, told, kept, and given up where nothing can be measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.federation.messages.base import Reply
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench, make_job, regression_rows

SIZES = {"ant": 200, "bee": 260, "cat": 240}


def noisy(sizes: dict[str, int]) -> dict[str, Rows]:
    """Rows with ten times as much noise as signal, on which the rule by rows is far too weak; test rows have none."""
    draw, found = np.random.default_rng(8), {}
    for name, rows in regression_rows(sizes).items():
        found[name] = replace(rows, y_train=rows.y_train + 10.0 * draw.normal(size=len(rows.y_train)))
    return found


def test_the_ridge_is_chosen_by_rows_kept_apart(tmp_path: Path) -> None:
    """Up on noise, down on clean targets; the model is that of a job with the number, which note and model tell."""
    for data, up in ((noisy(SIZES), True), (regression_rows(SIZES), False)):
        done = bench(data, tmp_path / str(up)).run(make_job("newton", ridge="auto"))
        assert done.model is not None
        ridge = done.model.job["method"]["ridge"]
        assert ridge > 1e-3 if up else ridge < 1e-5
        assert any(f"ridge {ridge:.6g}: predicts" in note and "rows kept apart best" in note for note in done.notes)
        numbered = bench(data, tmp_path / f"{up}2").run(make_job("newton", ridge=ridge))
        assert numbered.weights.tobytes() == done.weights.tobytes()
        by_rows = bench(data, tmp_path / f"{up}3").run(make_job("newton"))
        mse = [d.metrics[-1].pooled for d in (done, by_rows)]
        for model in ("global", "local"):
            assert mse[0][model]["mse"] < mse[1][model]["mse"]


def test_a_cut_changes_no_bit_and_searches_once(tmp_path: Path) -> None:
    """A run that goes on has the number from its checkpoint."""
    job = make_job("newton", ridge="auto", rounds=4, tolerance=1e-12)
    data = regression_rows(SIZES)
    whole = bench(data, tmp_path).run(job)
    cut = bench(data, tmp_path).run(job, stop_before=3)
    rest = bench(data, tmp_path, tamper={("ant", "newton.held_out_loss"): _never}).run(job, resumed=cut.journal.last)
    assert rest.weights.tobytes() == whole.weights.tobytes()
    assert any(note.startswith("ridge ") and "predicts" in note for note in rest.notes)


def test_a_client_that_falls_out_is_searched_without(tmp_path: Path) -> None:
    """The others begin anew, and a note names the one that states more rows apart than it has."""

    def wrong(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"num_apart": 10_000}
        return replace(reply, **changed)

    job = make_job("newton", ridge="auto", cohort='preflight = "quorum"')
    done = bench(regression_rows(SIZES), tmp_path, tamper={("bee", "newton.held_out_loss"): wrong}).run(job)
    assert any("bee" in note and "out of the pooled problem" in note for note in done.notes)
    assert any("predicts 264 rows kept apart best" in note for note in done.notes)


def test_without_enough_rows_the_rule_stays(tmp_path: Path) -> None:
    """A fifth of 20 rows is fewer than `min_rows`: nobody keeps any apart, and the job says so."""
    federation = bench(regression_rows({"ant": 20, "bee": 22}), tmp_path)
    for name, job in federation.jobs.items():
        job.file = ClientFile(state=tmp_path / name, policy=PolicySection(min_rows=10))
    done = federation.run(make_job("newton", ridge="auto"))
    assert any("by the rule, for no client has enough rows to keep some apart" in note for note in done.notes)


@pytest.mark.parametrize("settings", [{"loss": "squared"}, {"step": "paper"}])
def test_auto_is_refused_where_nothing_is_searched(settings: dict[str, Any]) -> None:
    """A head has a search of its own, and the paper's step has none."""
    with pytest.raises(ConfigError, match=r'ridge = "auto" belongs to loss = "ridge" with step = "auto"'):
        make_job("newton", ridge="auto", **settings)


def _never(reply: Reply) -> Reply:
    raise AssertionError(f"asked again: {reply}")
