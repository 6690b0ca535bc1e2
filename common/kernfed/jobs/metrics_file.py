"""A job's metrics as files: `metrics.jsonl` and `metrics.csv`, one number a line.

Each line names the round, the client (nothing: pooled over all test rows), the model measured (`global`, `local`,
`central`, or `training` for numbers of the solver), the metric and its value.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kernfed import files
from kernfed.artifact_names import METRICS_CSV, METRICS_JSONL
from kernfed.errors import DataError
from kernfed.federation.events import RoundMetrics

TRAINING = "training"
"""Stands in the place of a model for the solver's own numbers."""


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One number."""

    round: int
    client: str | None
    """None: pooled over all clients."""
    model: str
    metric: str
    value: float


def metric_lines(round_num: int, metrics: RoundMetrics) -> Iterator[MetricLine]:
    """A round's metrics, line by line: pooled, clients by name, training; metrics in the order of their names."""
    for model in sorted(metrics.pooled):
        yield from _scores(round_num, None, model, metrics.pooled[model])
    for client in sorted(metrics.clients):
        for model in sorted(metrics.clients[client]):
            yield from _scores(round_num, client, model, metrics.clients[client][model])
    yield from _scores(round_num, None, TRAINING, metrics.training)


def write_metrics(folder: Path, rounds: Iterable[tuple[int, RoundMetrics]]) -> None:
    """Write both files, in place of any older ones.

    They are not durable by themselves: the coordinator syncs the folder that they are in, with all else there.

    Args:
        folder: Where; it exists.
        rounds: Round numbers and their metrics. Where a round comes twice, as after a resume, the last one counts.
    """
    latest: Mapping[int, RoundMetrics] = dict(rounds)
    lines = [line for round_num in sorted(latest) for line in metric_lines(round_num, latest[round_num])]
    text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
    files.replace(folder / METRICS_JSONL, text.encode(), durable=False)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(MetricLine.__dataclass_fields__)
    for line in lines:
        writer.writerow([line.round, line.client or "", line.model, line.metric, repr(line.value)])
    files.replace(folder / METRICS_CSV, table.getvalue().encode(), durable=False)


def read_metrics(path: Path) -> list[MetricLine]:
    """Read a `metrics.jsonl`.

    Raises:
        DataError: The file is missing, or a line is not what `write_metrics` writes; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as err:
        raise DataError(f"{path}: cannot be read ({err.strerror}); give the folder of a finished job") from err
    return parse_metrics(text, str(path))


def parse_metrics(text: str, where: str) -> list[MetricLine]:
    """The numbers in the text of a `metrics.jsonl`; `where` names it in messages.

    Raises:
        DataError: A line is not what `write_metrics` writes; names the line.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            lines.append(MetricLine(**json.loads(line)))
        except (ValueError, TypeError) as err:
            raise DataError(f"{where}, line {number}: not a metric ({err}); fetch the file again") from err
    return lines


def _scores(round_num: int, client: str | None, model: str, scores: Mapping[str, float]) -> Iterator[MetricLine]:
    for metric in sorted(scores):
        yield MetricLine(round_num, client, model, metric, float(scores[metric]))
