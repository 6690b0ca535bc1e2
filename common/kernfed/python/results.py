"""What a job left, as objects of Python: its model, metrics, rounds, notes and report."""

from __future__ import annotations

import html
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kernfed import files
from kernfed.artifact_names import FINDINGS, JOB_JSON, METRICS_JSONL, MODEL_ARRAYS, MODEL_FACTS, REPORT
from kernfed.cli.job_text import metrics_text
from kernfed.errors import DataError, UnknownArtifactError
from kernfed.federation.events import EventKind, JobEvent, RoundMetrics, Scores
from kernfed.jobs.metrics_file import MetricLine, parse_metrics
from kernfed.methods.scores import ScoreOf, ScoresFinding
from kernfed.models.estimator import Estimator, Labels, load_model

if TYPE_CHECKING:
    import pandas as pd

_FRAME = '<iframe srcdoc="{page}" style="width:100%;height:42em;border:1px solid #ccc" title="report"></iframe>'


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is over, and its metrics; empty where none were measured."""

    number: int
    """From 1."""
    pooled: Mapping[str, Scores]
    """Model measured (`global`, `local`) to metrics over all clients' test rows."""
    clients: Mapping[str, Mapping[str, Scores]]
    """Client to model measured to metrics on its own test rows."""
    training: Scores
    """Numbers of the solver."""

    def __repr__(self) -> str:
        """The most telling numbers, in a line."""
        told = metrics_text(RoundMetrics(self.pooled, self.clients, self.training))
        return f"<round {self.number}{told and f': {told}'}>"


def round_of(event: JobEvent) -> Round | None:
    """The round that an event closes; None: it closes none."""
    if event.kind is not EventKind.ROUND_CLOSED:
        return None
    metrics = event.metrics or RoundMetrics()
    return Round(event.round_num, metrics.pooled, metrics.clients, metrics.training)


@dataclass(frozen=True, slots=True)
class Report:
    """A job's report, one page of HTML; a notebook shows it."""

    html: str
    """The page; it needs no network and no script."""

    def save(self, path: Path | str) -> Path:
        """Write the page to a file, whole or not at all."""
        place = Path(path)
        files.replace(place, self.html.encode(), durable=False)
        return place

    def _repr_html_(self) -> str:
        return _FRAME.format(page=html.escape(self.html))

    def __repr__(self) -> str:
        """The size, for who sees no page."""
        return f"<report of {len(self.html):,} characters; save(path) writes it>"


class Results(ABC):
    """What a job left, whether it ran in this process or at a coordinator."""

    @abstractmethod
    def artifact(self, name: str) -> bytes:
        """Content of one of the job's files, such as `findings.json`.

        Raises:
            UnknownArtifactError: The job left no file of this name.
        """

    @property
    def record(self) -> Mapping[str, Any]:
        """All facts of the job, `job.json`: settings with defaults, clients, notes, failures, and who told what."""
        found: Mapping[str, Any] = json.loads(self.artifact(JOB_JSON))
        return found

    @property
    def notes(self) -> list[str]:
        """What the job has to say; the last one begins with `end:` and says whether it arrived."""
        return [note["message"] for note in self.record["notes"]]

    @property
    def findings(self) -> Mapping[str, Any]:
        """What the method found, `findings.json`; empty where it left none."""
        try:
            found: Mapping[str, Any] = json.loads(self.artifact(FINDINGS))
        except UnknownArtifactError:
            return {}
        return found

    def model(self, *, labels: Labels = "own", device: str = "cpu") -> Estimator:
        """The job's global model as a scikit-learn estimator; arguments as of `kernfed.load_model`.

        Raises:
            DataError: The job left none: each client keeps a model of its own, or it failed before it had one.
        """
        try:
            parts = {name: self.artifact(name) for name in (MODEL_ARRAYS, MODEL_FACTS)}
        except UnknownArtifactError as err:
            raise DataError(
                "the job left no global model: each client keeps one of its own (personalise, distill, local), or the "
                "method leaves none"
            ) from err
        with TemporaryDirectory(prefix="kernfed-model-") as folder:
            for name, content in parts.items():
                Path(folder, name).write_bytes(content)
            return load_model(folder, labels=labels, device=device)

    def metrics(self) -> pd.DataFrame | list[dict[str, Any]]:
        """Every number that was measured: round, client (none: all test rows), model, metric, value.

        Returns:
            A data frame where pandas is installed, else one dict a number.
        """
        return _frame([asdict(line) for line in self._lines()], list(MetricLine.__dataclass_fields__))

    def scores(self) -> pd.DataFrame | list[dict[str, Any]]:
        """What the last models are worth on each client's test rows: value, standard error, 95 % interval, rows.

        Returns:
            As `metrics`; empty where nothing was measured on test rows, or nobody told errors.
        """
        found = self.findings.get(ScoresFinding.name)
        clients = ScoresFinding.from_json(found).clients if found else ()
        rows = [{"client": of.client, **asdict(score)} for of in clients for score in of.scores]
        return _frame(rows, ["client", *ScoreOf.__dataclass_fields__])

    def report(self) -> Report:
        """The job's report.

        Raises:
            ImportError: The plotting libraries are missing.
        """
        try:
            return Report(self.artifact(REPORT).decode())
        except UnknownArtifactError:
            from kernfed.report.page import render  # noqa: PLC0415  # loads the plotting libraries

            return Report(render(self.record, self._lines(), self.findings))

    @abstractmethod
    def rounds(self) -> Iterator[Round]:
        """The job's rounds, in their order."""

    def _lines(self) -> list[MetricLine]:
        return parse_metrics(self.artifact(METRICS_JSONL).decode(), METRICS_JSONL)


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame | list[dict[str, Any]]:
    """A data frame where pandas is installed, else the rows."""
    try:
        import pandas as pd  # noqa: PLC0415  # where it is installed
    except ImportError:
        return rows
    return pd.DataFrame(rows, columns=columns)
