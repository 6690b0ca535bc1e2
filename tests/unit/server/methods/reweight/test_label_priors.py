"""Ratios of classes, from labels and without, end to end on clients in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import JobError
from kernfed.methods.reweight.label_shift import label_ratios, priors
from kernfed_server.jobs.journal import Checkpoint
from kernfed_testing.in_process import Bench
from kernfed_testing.methods.personalise import run
from kernfed_testing.methods.reweight import (
    CLASSES,
    NAMES,
    PAPER,
    finding,
    label_shifted_rows,
    reweight_job,
    sharing,
    shifted_rows,
    weights,
)

pytestmark = pytest.mark.slow


def test_label_ratios_are_exact(tmp_path: Path) -> None:
    """Weights follow from the counts of classes alone, for all clients, for each its own, and for one target."""
    rows = label_shifted_rows()
    te = priors([np.bincount(rows[c].y_test, minlength=3) for c in NAMES])
    tr = priors([np.bincount(rows[c].y_train, minlength=3) for c in NAMES])
    wanted: dict[str, tuple[dict[str, Any], Any]] = {
        "all": ({}, lambda _: te),
        "own": ({"scope": "own"}, lambda i: te[i : i + 1]),
        "target": ({"scope": "target", "target": "bee"}, lambda _: te[1:2]),
    }
    for variant, (settings, chosen) in wanted.items():
        job = reweight_job(
            task="classification",
            ratios=f'{PAPER if variant == "all" else ""}source = "labels"',
            rounds=2,
            compare=False,
            **settings,
        )
        jobs = sharing(rows, tmp_path / variant, CLASSES)
        done = run(job, jobs)
        for i, name in enumerate(NAMES):
            mine = chosen(i)
            want = label_ratios(mine, tr[i])[rows[name].y_train] / len(mine)
            np.testing.assert_allclose(weights(jobs, variant)[name], want, rtol=1e-12)
        assert finding(done)["clients"][0]["mean"] == pytest.approx(finding(done)["clients"][0]["total"])


def test_black_box_needs_no_test_labels(tmp_path: Path) -> None:
    """Test labels are changed to nonsense: the weights stay, and are near those of the true counts."""
    rows = label_shifted_rows(600)
    nonsense = {n: type(r)(r.x_train, r.y_train, r.x_test, 0 * r.y_test) for n, r in rows.items()}
    job = reweight_job(
        task="classification", ratios=f'{PAPER}source = "black-box"\nclassifier = "own"', rounds=2, compare=False
    )
    found = []
    for i, given in enumerate((rows, nonsense)):
        jobs = sharing(given, tmp_path / str(i), CLASSES)
        done = run(job, jobs)
        assert any("smallest singular values" in text for text in finding(done)["words"])
        found.append(weights(jobs, "all"))
    te = priors([np.bincount(rows[c].y_test, minlength=3) for c in NAMES])
    for name in NAMES:
        np.testing.assert_array_equal(found[0][name], found[1][name])
        tr = priors(np.bincount(rows[name].y_train, minlength=3))
        want = label_ratios(te, tr)[rows[name].y_train] / 3
        assert np.abs(found[0][name] - want).mean() < 0.35 * np.abs(1 - want).mean()


@pytest.mark.parametrize("classifier", ["pooled", "own"])
def test_what_stands_in_has_a_name_and_a_run_keeps_its_rule(tmp_path: Path, classifier: str) -> None:
    """Two classes lie in one place: by default, by the rule of before, and in a job that an earlier release began."""
    rows = label_shifted_rows(90)
    for each in rows.values():
        for x, y in ((each.x_train, each.y_train), (each.x_test, each.y_test)):
            x[y == 2] *= [1.0, -1.0]  # to where class 1 is
    keys = f'{PAPER}source = "black-box"\nclassifier = "{classifier}"\n'
    notes = {}

    def ran(folder: str, more: str = "", **how: Any) -> Any:
        job = reweight_job(task="classification", ratios=keys + more, rounds=2, compare=False)
        outcome = Bench(sharing(rows, tmp_path / folder, CLASSES)).run(job, **how)
        notes[folder] = "\n".join(outcome.notes)
        return outcome

    last = ran("a", stop_before=2).journal.checkpoints[-1]
    ran("b", 'stand_in = "all"\n')
    ran("c", resumed=last)
    former = {name: array for name, array in last.state.items() if not name.startswith("run.agreed.")}
    ran("d", resumed=Checkpoint(last.round_num, former))
    said = {folder: ("of test classes that" in told, "of all test classes" in told) for folder, told in notes.items()}
    assert said == {"a": (True, False), "b": (False, True), "c": (True, False), "d": (False, True)}


def test_labels_do_not_fit_a_regression(tmp_path: Path) -> None:
    """The job is refused before anything is asked for."""
    with pytest.raises(JobError, match='use "matching"'):
        run(reweight_job(ratios='source = "labels"'), sharing(shifted_rows(), tmp_path))
