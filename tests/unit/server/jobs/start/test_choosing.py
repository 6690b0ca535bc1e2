"""Ridge and lengthscale by folds of the clients' training rows: found, told, kept, and given up where it must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, JobError
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Kind, Reply
from kernfed.federation.messages.choosing import TrainingFoldSumsRequest
from kernfed.jobs.client_file import PolicySection
from kernfed.methods.registry import METHODS
from kernfed.report.sections import overviews, sections
from kernfed_client.daemon.policy import Policy
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Outcome, bench, make_job, regression_rows

SIZES = {"ant": 100, "bee": 130, "cat": 120}
AUTO: dict[str, Any] = {"features": 'lengthscale = "auto"'}
STEP = "choosing.fold_sums"


def wavy(test_noise: float = 0.0) -> dict[str, Rows]:
    """Targets that go up and down often within the median lengthscale, and test targets with noise beside them."""
    draw, found = np.random.default_rng(3), {}
    for name, rows in regression_rows(SIZES).items():
        test = np.sin(6.0 * rows.x_test[:, 0]) + test_noise * draw.normal(size=len(rows.x_test))
        train = np.sin(6.0 * rows.x_train[:, 0]) + 0.1 * draw.normal(size=len(rows.x_train))
        found[name] = replace(rows, y_train=train, y_test=test)
    return found


def findings(done: Outcome) -> dict[str, Any]:
    """Of a job, by name."""
    return {e.message: e.finding for e in done.journal.events if e.kind is EventKind.FINDING}


def choice(done: Outcome) -> dict[str, Any]:
    """The finding of a job."""
    found: dict[str, Any] = findings(done)["choice"]
    return found


def test_ridge_and_lengthscale_are_chosen_and_told(tmp_path: Path) -> None:
    """A shorter lengthscale than the median predicts better; model, note and finding say the same; test rows say no.

    With other test rows the choice, its curve and the model are the same bits.
    """
    job = make_job("dkrr", ridge="auto", **AUTO)
    done, other = (bench(wavy(noise), tmp_path / str(noise)).run(job) for noise in (0.0, 9.0))
    assert done.weights.tobytes() == other.weights.tobytes()
    assert choice(done) == choice(other)
    usual = bench(wavy(), tmp_path / "usual").run(make_job("dkrr"))
    assert done.model is not None
    assert usual.model is not None
    assert done.metrics[-1].pooled["global"]["mse"] < usual.metrics[-1].pooled["global"]["mse"]
    found = choice(done)
    assert found["lengthscale"] == done.model.spec.lengthscales[0] < usual.model.spec.lengthscales[0]
    assert found["ridge"] == done.model.job["method"]["ridge"]
    assert found["rows"] == sum(SIZES.values())
    least = min(found["tried"], key=lambda tried: tried["error"])
    assert (least["ridge"], least["lengthscale"]) == (found["ridge"], found["lengthscale"])
    assert least["standard_error"] > 0
    assert any(note.startswith(f"lengthscale {found['lengthscale']:.6g}: predicts 350 ") for note in done.notes)
    assert "Test rows had no say" in sections()["choice"](found).text
    starred = [row for row in overviews()["choice"](found).table.rows if row[2].endswith("*")]
    assert len(starred) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in ("newton", "fedavg", "reweight") if name in METHODS])
def test_methods_take_the_best_of_a_list(tmp_path: Path, method: str) -> None:
    """The model is that of a job with the number, and a note tells that the end of the list was best."""
    rounds: dict[str, Any] = {"rounds": 2}
    data = regression_rows(SIZES)
    done = bench(data, tmp_path / "list").run(make_job(method, ridge=[1e-2, 1e-1, 1.0], **rounds))
    assert done.model is not None
    assert done.model.job["method"]["ridge"] == choice(done)["ridge"] == 1e-2
    assert "the smallest ridge that was tried was best" in choice(done)["words"]
    assert choice(done)["lengthscale"] is None
    assert done.weights.tobytes() == bench(data, tmp_path).run(make_job(method, ridge=1e-2, **rounds)).weights.tobytes()


def test_a_cut_changes_no_bit_and_asks_once(tmp_path: Path) -> None:
    """A run that goes on has lengthscale and ridge from its checkpoint, and asks for no sums."""
    job = make_job("newton", ridge="auto", rounds=3, tolerance=1e-12, **AUTO)
    whole = bench(wavy(), tmp_path).run(job)
    cut = bench(wavy(), tmp_path).run(job, stop_before=3)
    rest = bench(wavy(), tmp_path, tamper={("ant", STEP): _never}).run(job, resumed=cut.journal.last)
    assert rest.weights.tobytes() == whole.weights.tobytes()
    assert any(note.startswith("ridge ") and "chosen with the lengthscale" in note for note in rest.notes)


def test_a_policy_that_withholds_sums_is_named(tmp_path: Path) -> None:
    """Its client is trained on like the others, and has no say; where all withhold them, rule and median stay."""
    job = make_job("dkrr", ridge="auto", **AUTO)
    few = bench(wavy(), tmp_path / "few", tamper={("bee", STEP): _forbidden}).run(job)
    assert choice(few)["silent"] == ["bee"]
    assert "of bee no rows are among these" in choice(few)["words"]
    assert "sufficient_statistic" in choice(few)["words"]
    assert choice(few)["rows"] == 220
    none = bench(wavy(), tmp_path / "none", tamper={(name, STEP): _forbidden for name in SIZES}).run(job)
    assert "choice" not in findings(none)
    assert any(note.startswith("the lengthscale stays at the median, for it cannot be chosen") for note in none.notes)
    assert any(note.startswith("ridge ") and "by the rule, for it cannot" in note for note in none.notes)


def test_lengthscales_may_be_listed(tmp_path: Path) -> None:
    """Of two candidates the better one is taken, the ridge stays by its rule, and the end of the list is told."""
    job = make_job("dkrr", features='lengthscale = "auto"\ncandidates = [1.5, 0.05]')
    found = choice(bench(regression_rows(SIZES), tmp_path).run(job))
    assert abs(found["lengthscale"] - 1.5) < 1e-12
    assert found["ridge"] is None
    assert "the largest lengthscale that was tried was best" in found["words"]


def test_sums_that_no_rows_have_stop_the_job(tmp_path: Path) -> None:
    """A client that states ten times its targets' moments is named, before anything is trained."""

    def wrong(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"target_moments": 100.0 * getattr(reply, "target_moments")}  # noqa: B009
        return replace(reply, **changed)

    with pytest.raises(JobError, match=r"bee: .*target moments are larger"):
        bench(wavy(), tmp_path, tamper={("bee", STEP): wrong}).run(make_job("dkrr", **AUTO))


@pytest.mark.parametrize(
    ("method", "keys", "said"),
    [
        ("fedavg", {"ridge": "auto", "loss": "squared"}, "for a head"),
        ("newton", {"ridge": [1e-3], "loss": "squared"}, "for a head"),
        ("dkrr", {"features": 'kernel = "linear"\nlengthscale = "auto"'}, "is for random features"),
        ("dkrr", {"features": "candidates = [1.0]"}, "candidates"),
        ("dkrr", {"ridge": []}, "at least 1 item"),
    ],
)
def test_what_cannot_be_chosen_is_refused(method: str, keys: dict[str, Any], said: str) -> None:
    """A head's ridge, an exact map's lengthscale, candidates of no choice and an empty list each get a sentence."""
    with pytest.raises(ConfigError, match=said):
        make_job(method, **keys)


def _forbidden(_reply: Reply) -> Reply:
    Policy(PolicySection(allow=tuple(kind for kind in Kind if kind is not Kind.SUFFICIENT_STATISTIC))).check(
        TrainingFoldSumsRequest, "ann", "dkrr", 100
    )
    raise AssertionError("the policy lets it out")


def _never(reply: Reply) -> Reply:
    raise AssertionError(f"asked again: {reply}")
