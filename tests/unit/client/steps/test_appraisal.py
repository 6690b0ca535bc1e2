"""What a client tells of its scores' errors: of its test rows by group, and of no fewer rows than its policy says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.messages.evaluation import AppraiseRequest, EvaluateRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps import appraisal, evaluation
from kernfed_testing.in_process import bench, make_job
from kernfed_testing.methods.scores import disease_rows

BOTH = AppraiseRequest(models=("global", "local"))


def measured(state: Path, *, min_rows: int = 1, positive_share: float = 0.4) -> LocalJob:
    """A client that measured a global and a local model."""
    federation = bench(disease_rows({"ant": 90, "bee": 80}, positive_share), state, classes=("no", "yes"))
    federation.run(make_job("dkrr", task="binary"))
    job = federation.jobs["ant"]
    policy = job.file.policy.model_copy(update={"min_rows": min_rows})
    job.file = job.file.model_copy(update={"policy": policy})
    return job


def test_scores_are_of_what_was_measured_last(tmp_path: Path) -> None:
    """Accuracy and AUC are those of the last evaluation, and the difference is that of the two models."""
    job = measured(tmp_path)
    request = EvaluateRequest(weights=np.ones((40, 1)), local_ridge=0.1, include_global=True)
    sums = {s.model: s for s in evaluation.evaluate(job, request).sums}
    reply = appraisal.appraise(job, BOTH)
    told = {(s.model, s.metric): s for s in reply.scores}
    for model in ("global", "local"):
        assert told[model, "auc"].value == pytest.approx(sums[model].auc)
        assert told[model, "accuracy"].value == pytest.approx(sums[model].num_correct / reply.num_test_rows)
    (auc,) = [d for d in reply.differences if d.metric == "auc"]
    assert auc.value == pytest.approx(told["global", "auc"].value - told["local", "auc"].value)
    assert list(reply.contradictions(None)) == []  # type: ignore[arg-type]  # it is not looked at
    assert list(BOTH.refusals(reply)) == []


def test_a_client_that_starts_again_tells_the_same(tmp_path: Path) -> None:
    """Models that it measured in an earlier life have their errors, also where only some are measured again."""
    job = measured(tmp_path)
    job.durable = True
    both = EvaluateRequest(weights=np.ones((40, 1)), local_ridge=0.1, include_global=True)
    evaluation.evaluate(job, both)
    twin = appraisal.appraise(job, BOTH)
    assert {s.model for s in twin.scores} == {"global", "local"}
    job._memories.clear()  # it was killed
    assert appraisal.appraise(job, BOTH) == twin
    job._memories.clear()
    evaluation.evaluate(job, replace(both, local_ridge=0.0))
    assert appraisal.appraise(job, BOTH) == twin
    job._memories.clear()
    (path,) = job.folder.rglob("scores.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    assert appraisal.appraise(job, BOTH).scores == ()


def test_a_full_disk_holds_no_metric_up(tmp_path: Path) -> None:
    """What the file of a later life cannot take is told all the same in this one."""
    job = measured(tmp_path)
    job.durable = True
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "setup").write_text("")  # where a folder should be
    request = EvaluateRequest(weights=np.ones((40, 1)), local_ridge=0.1, include_global=True)
    assert len(evaluation.evaluate(job, request).sums) == 2
    assert {s.model for s in appraisal.appraise(job, BOTH).scores} == {"global", "local"}


def test_a_model_that_was_not_measured_is_not_told_of(tmp_path: Path) -> None:
    """Nobody makes up scores of a model that the client does not know."""
    reply = appraisal.appraise(measured(tmp_path), AppraiseRequest(models=("personal",)))
    assert (reply.scores, reply.differences) == ((), ())


def test_the_threshold_is_the_share_of_positive_training_rows(tmp_path: Path) -> None:
    """It is a count that leaves anyhow, and the score of no row."""
    job = measured(tmp_path)
    assert appraisal.appraise(job, BOTH).threshold == job.targets_train.sum() / job.num_rows


def test_no_number_is_of_fewer_positive_rows_than_the_policy_says(tmp_path: Path) -> None:
    """Neither the count of few positive test rows leaves, nor anything that is of these alone."""
    job = measured(tmp_path, min_rows=15, positive_share=0.2)
    assert 0 < int(job.targets_test.sum()) < 15
    reply = appraisal.appraise(job, BOTH)
    assert (reply.num_positive, reply.told_positive) == (0, False)
    assert {"auc", "average_precision", "calibration_slope", "sensitivity"} <= set(reply.left_out)
    assert all(s.behind >= 15 for s in reply.scores)
    assert {d.metric for d in reply.differences} == {"brier", "log_loss", "accuracy"}


def test_a_lie_about_metrics_is_refused(tmp_path: Path) -> None:
    """An AUC above 1, a metric that nobody knows, more rows than there are, a difference that is none."""
    reply = appraisal.appraise(measured(tmp_path), BOTH)

    def problems(**changed: Any) -> str:
        return "; ".join(replace(reply, **changed).contradictions(None))  # type: ignore[arg-type]  # as above

    first, difference = reply.scores[0], reply.differences[0]
    assert "cannot be" in problems(scores=(replace(first, value=1.5),), differences=())
    assert "the error of" in problems(scores=(replace(first, error=1.5),), differences=())
    assert "nobody knows" in problems(scores=(replace(first, metric="luck"),), differences=())
    assert "is of 1000000 of" in problems(scores=(replace(first, behind=10**6),), differences=())
    assert "twice" in problems(scores=(*reply.scores, first))
    assert "the difference of" in problems(differences=(replace(difference, value=difference.value + 0.1),))
    assert "without both of its parts" in problems(scores=(), differences=(difference,))
    assert "positive rows" in problems(num_positive=10**6)
    strange = replace(reply, scores=(replace(first, model="hers"),))
    assert "nobody asked for" in "; ".join(BOTH.refusals(strange))
