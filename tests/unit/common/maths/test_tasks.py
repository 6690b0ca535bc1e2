"""Tests of `kernfed.maths.tasks`: targets of labels, and what scores predict."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.federation.messages.data import LearningTask
from kernfed.maths.tasks import TASKS, Reach
from kernfed.metric_names import METRICS

CLASSES = {
    LearningTask.REGRESSION: (),
    LearningTask.BINARY: ("no", "yes"),
    LearningTask.CLASSIFICATION: ("a", "b", "c"),
}


@pytest.mark.parametrize(
    ("task", "labels", "targets"),
    [
        (LearningTask.REGRESSION, [1.5, -2.0], [[1.5], [-2.0]]),
        (LearningTask.BINARY, [1, 0], [[1.0], [0.0]]),
        (LearningTask.CLASSIFICATION, [2, 0], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    ],
)
def test_targets_have_one_column_per_output(
    task: LearningTask, labels: list[float], targets: list[list[float]]
) -> None:
    """Numbers and 0/1 are one column; of several classes each has its own."""
    encoded = TASKS[task].encode(np.array(labels), CLASSES[task])
    np.testing.assert_array_equal(encoded, targets)
    assert encoded.dtype == np.float64
    assert encoded.shape[1] == TASKS[task].num_outputs(CLASSES[task])


@pytest.mark.parametrize(
    ("task", "scores", "said", "names"),
    [
        (LearningTask.REGRESSION, [[1.5], [-2.0]], [1.5, -2.0], []),
        (LearningTask.BINARY, [[0.5], [0.49]], ["yes", "no"], ["score"]),
        (
            LearningTask.CLASSIFICATION,
            [[0.1, 0.9, 0.2], [0.7, 0.7, 0.1]],
            ["b", "a"],
            ["score_a", "score_b", "score_c"],
        ),
    ],
)
def test_scores_predict(task: LearningTask, scores: list[list[float]], said: list[object], names: list[str]) -> None:
    """Numbers are told as they are; from 1/2 on the class is positive; of equal scores the first wins."""
    assert TASKS[task].predictions(np.array(scores), CLASSES[task]).tolist() == said
    assert TASKS[task].score_names(CLASSES[task]) == names


@pytest.mark.parametrize("task", LearningTask)
def test_labels_as_scores_are_right(task: LearningTask) -> None:
    """Targets that are given back as scores predict their own labels, and a task's main metric is a known one."""
    classes = CLASSES[task]
    labels = np.arange(len(classes) or 4)
    targets = TASKS[task].encode(labels, classes)
    told = TASKS[task].predictions(targets, classes).tolist()
    assert told == ([classes[i] for i in labels] if classes else labels.tolist())
    assert TASKS[task].sums(targets, targets).num_correct == (len(labels) if TASKS[task].has_classes else 0)
    assert TASKS[task].main_metric in METRICS


@pytest.mark.parametrize(
    ("task", "scores", "targets", "misfits", "told"),
    [
        (
            LearningTask.REGRESSION,
            [[1.5], [-2.0]],
            [[1.0], [-1.0]],
            [0.5, 1.0],
            {"deviation": [0.25, 0.5], "lower": [1.0, -3.0], "upper": [2.0, -1.0]},
        ),
        (LearningTask.BINARY, [[0.5], [0.1]], [[0.0], [1.0]], [0.5, 0.9], {"plausible": ["no|yes", "no|yes"]}),
        (
            LearningTask.CLASSIFICATION,
            [[0.1, 0.9, 0.5], [-0.1, -0.2, -0.3]],
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
            [0.9, 1.2],
            {"plausible": ["b|c", "a"]},
        ),
    ],
)
def test_ranges_are_told(
    task: LearningTask, scores: list[list[float]], targets: list[list[float]], misfits: list[float], told: object
) -> None:
    """Numbers have bounds; of classes those are told whose scores lack no more, always with the predicted one."""
    s, t = np.array(scores), np.array(targets)
    np.testing.assert_allclose(TASKS[task].misfits(t - s, t), misfits)
    reach = Reach(np.array([0.5, 1.0]), np.array([0.25, 0.5]))
    found = TASKS[task].ranges(s, reach, CLASSES[task])
    assert found == told
    assert tuple(found) == TASKS[task].range_names
