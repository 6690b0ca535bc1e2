"""A client that lies in one number is left out, or named, or does no harm; `make lies` tells more lies than these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.federation.events import EventKind, JobEvent, RoundMetrics
from kernfed.federation.messages.evaluation import Evaluation, MetricSums
from kernfed_testing.hostile.lies import LIAR, MOST_HARM, Ended, Liars, Lie, lies_in, numbers_of, verdict
from kernfed_testing.methods.variants import METHODS

TOLD = 3
"""Lies per method."""
FIRST = {METHODS[variant]["name"]: variant for variant in reversed(METHODS) if METHODS[variant]["name"] != "probe"}
"""A variant of each method."""
WORST = {
    "dkrr": ["ridge.local_solve.weights all -1", "data.describe.mean x -1", "data.describe.deviation all 1e308"],
    "personalise": ["personalise.embed.trace all 1e308"],
    "personalise alike": ["personalise.moments.mean x 1000"],
    "personalise fedavg": ["personalise.moments.mean x -1"],
    "personalise newton": ["personalise.hessian_products.products all -1"],
    "online": ["online.ranges.target_low x -1", "online.metrics.sums.squared_error x 1000"],
    "reweight fedavg": ["reweight.local_update.networks all -1"],
    "reweight own": [
        "reweight.gradient.gradients x 3 more each time",
        "reweight.gradient.gradients x 1000",
        "reweight.use_ratios.target_mean x -1",
        "reweight.use_ratios.target_square x 3 more each time",
    ],
    "newton": ["newton.gradient.gradient x -1", "evaluation.evaluate.sums.squared_error x 1000"],
    "fedavg": ["fedavg.local_update.weights x 3 more each time"],
    "describe": ["describe.columns.deviation x 1000", "describe.columns.greatest x 1e5"],
    "glm": ["glm.start.numerator x 1000", "glm.sums.deviance x 1000", "glm.sums.pearson x 1000"],
    "kaplan-meier": ["survival.times.times x 1000"],
    "cox": ["cox.sums.hessian x 1000", "cox.sums.loss x 1000", "cox.end.times x 1000", "cox.end.hazards x 1000"],
}
"""Lies that did harm, and nobody was told, before there was a rule for them; and one that grows from round to round."""


@pytest.mark.parametrize("variant", sorted(FIRST.values()))
def test_some_lies(tmp_path: Path, variant: str) -> None:
    """A few lies in every method: its client is left out or named, or the others are none the worse."""
    liars = Liars(variant, tmp_path)
    lies = [lie for lie in liars.lies() if not lie.step.startswith("data.")]
    drawn = np.random.default_rng(len(lies)).choice(len(lies), TOLD, replace=False)
    found = [liars.tell(lies[i]) for i in drawn]
    assert not [f"{v.lie} {v.outcome} {v.harm:.3g} {v.said}" for v in found if v.silent]


@pytest.mark.parametrize("variant", sorted(WORST.keys() & METHODS.keys()))
def test_the_worst_lies(tmp_path: Path, variant: str) -> None:
    """Turned signs, constants and figures beyond reason, in what means and sums are formed of."""
    liars = Liars(variant, tmp_path)
    lies = {str(lie): lie for lie in liars.lies()}
    for name in WORST[variant]:
        found = liars.tell(lies[name])
        assert not found.silent, found


def test_every_number_of_a_message_is_lied_in() -> None:
    """Numbers, arrays, lists, and numbers of messages within a message; what would change nothing is no lie."""
    assert (("sums", "squared_error"), False) in set(numbers_of(Evaluation))
    sums = MetricSums(
        model="global",
        num_rows=3,
        squared_error=2.0,
        target_mean=0.0,
        target_sum_squares=1.0,
        num_correct=0,
        log_loss=0.0,
        auc=0.0,
        auc_pairs=0.0,
    )
    reply = Evaluation(num_test_rows=3, sums=(sums, replace(sums, model="local")))
    told = {str(lie) for lie in lies_in("evaluate", [reply])}
    assert {"evaluate.num_test_rows x 1000", "evaluate.sums.squared_error x 1e5"} <= told
    assert "evaluate.sums.num_correct all 0" not in told
    lie = Lie("evaluate", ("sums", "squared_error"), "x -1")
    assert [s.squared_error for s in lie.told(reply).sums] == [-2.0, -2.0]


def test_what_nobody_is_told_of_is_silent() -> None:
    """A model that is worse at another client than may be, without a word; and the same with one."""
    lie = Lie("step", ("weights",), "x -1")

    def ended(*notes: str) -> Ended:
        scores = {"ant": {"global": {"mse": 2 * MOST_HARM}}}
        closed = JobEvent(EventKind.ROUND_CLOSED, metrics=RoundMetrics(clients=scores))
        return Ended([closed, *(JobEvent(EventKind.NOTE, message=note) for note in notes)], None)

    bounds = {"ant global": 1.0}
    assert verdict(lie, ended(), bounds, []).outcome == "SILENT"
    assert verdict(lie, ended("ant is odd"), bounds, []).outcome == "SILENT"
    assert verdict(lie, ended(f"{LIAR} is odd"), bounds, []).outcome == "named"
    assert verdict(lie, ended(), {"ant global": 2.0}, []).outcome == "bounded"


def test_a_figure_that_changes_is_silent() -> None:
    """Where a job measures no model, what it shows is held against what it shows without the lie."""
    lie = Lie("step", ("deviation",), "x 1000")

    def ended(deviation: float) -> Ended:
        finding = {"pooled": [{"column": "x", "deviation": deviation}]}
        return Ended([JobEvent(EventKind.FINDING, finding=finding)], None)

    honest = ended(0.3).figures()
    assert honest == {".pooled[0].deviation": 0.3}
    assert verdict(lie, ended(140.0), {}, [], honest).outcome == "SILENT"
    assert verdict(lie, ended(0.6), {}, [], honest).outcome == "bounded"
