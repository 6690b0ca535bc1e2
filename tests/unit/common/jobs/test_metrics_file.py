"""Metrics files: what is written is read back, in a fixed order, whole or not at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed.federation.events import RoundMetrics
from kernfed.jobs.metrics_file import MetricLine, metric_lines, read_metrics, write_metrics

ROUND = RoundMetrics(
    pooled={"local": {"auc": 0.5}, "global": {"mse": 2.0, "auc": 0.75}},
    clients={"bee": {"global": {"auc": 1 / 3}}, "ant": {"global": {"auc": 0.1}}},
    training={"objective": -1e-17},
)


def test_lines_are_sorted_and_name_round_client_model_and_metric() -> None:
    """Pooled first, then clients by name, then the solver's own numbers."""
    assert list(metric_lines(3, ROUND)) == [
        MetricLine(3, None, "global", "auc", 0.75),
        MetricLine(3, None, "global", "mse", 2.0),
        MetricLine(3, None, "local", "auc", 0.5),
        MetricLine(3, "ant", "global", "auc", 0.1),
        MetricLine(3, "bee", "global", "auc", 1 / 3),
        MetricLine(3, None, "training", "objective", -1e-17),
    ]


def test_both_files_hold_the_same_numbers_to_the_last_bit(tmp_path: Path) -> None:
    """Rounds are in order; of a round that was repeated after a resume only the last counts."""
    write_metrics(tmp_path, [(2, ROUND), (1, ROUND), (2, RoundMetrics(training={"seconds": 0.1}))])
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert lines == [*metric_lines(1, ROUND), MetricLine(2, None, "training", "seconds", 0.1)]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["client"] is None
    with (tmp_path / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["value"]) for row in table] == [line.value for line in lines]
    assert [row["client"] or None for row in table] == [line.client for line in lines]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.csv", "metrics.jsonl"]


def test_a_damaged_or_missing_file_is_named_with_its_line(tmp_path: Path) -> None:
    """The error says which line."""
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(DataError, match="cannot be read"):
        read_metrics(path)
    write_metrics(tmp_path, [(1, ROUND)])
    path.write_text(path.read_text() + '{"round": 1}\n')
    with pytest.raises(DataError, match="line 7: not a metric"):
        read_metrics(path)
