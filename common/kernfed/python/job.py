"""`kernfed.Job`: a job made in Python, or read from its file; the same keys, checks and words as in the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.jobs.job_sections import CohortSection, DataSection, FeaturesSection, PrivacySection
from kernfed.jobs.toml_file import read_toml, validated
from kernfed.jobs.toml_text import toml_text
from kernfed.python.plain import plain
from kernfed.section import MethodSection

Table = Mapping[str, Any]


class Job:
    """What is to be learned, by which method, from whose data: one object for a simulation and for a federation.

    Each argument is a key of a job file; docs/jobs.md describes all. A key that is left out has the file's default. A
    table is one of the classes `kernfed.Newton`, `kernfed.Data` and so on, or a dict of its keys.

    Raises:
        ConfigError: A key is wrong; names it, and what to do.
    """

    def __init__(
        self,
        *,
        name: str,
        method: MethodSection | Table,
        data: DataSection | Table | None = None,
        cohort: CohortSection | Table | None = None,
        features: FeaturesSection | Table | None = None,
        privacy: PrivacySection | Table | None = None,
        seed: int | None = None,
        precision: str | None = None,
        evaluate_every: int | None = None,
        local_shared: bool | None = None,
        start_from: str | Path | None = None,
        report: bool | None = None,
    ) -> None:
        """Check the keys together, as a file is checked.

        Args:
            name: For people; need not be unique.
            method: Such as `kernfed.Newton(ridge=0.01)`, or a dict with `name`.
            data: `kernfed.Data(...)`: task, target, features.
            cohort: `kernfed.Cohort(...)`: which clients, and how many must answer.
            features: `kernfed.Features(...)`: the feature map.
            privacy: `kernfed.Privacy(...)`: what nobody sees of a single client.
            seed: Every random draw of the job comes from it.
            precision: Float type on the wire, `float64` or `float32`.
            evaluate_every: Rounds between evaluations at the clients.
            local_shared: Measure also each client's model with the scales of all.
            start_from: An earlier job to go on from: the folder of its artifacts, or its id.
            report: Whether to leave a report.
        """
        given = {
            "name": name,
            "seed": seed,
            "precision": precision,
            "evaluate_every": evaluate_every,
            "local_shared": local_shared,
            "start_from": start_from,
            "report": report,
            "method": method,
            "cohort": cohort,
            "data": data,
            "features": features,
            "privacy": privacy,
        }
        tables = {key: plain(value) for key, value in given.items() if value is not None}
        self.file: JobFile = validated(JobFile, tables, "kernfed.Job")
        """The keys with all defaults, checked."""
        self.text = toml_text(tables)
        """As a job file: what is submitted, and what an operator's signature is of."""
        self.folder = Path()
        """From which paths that the job names are taken."""

    @classmethod
    def from_toml(cls, path: Path | str) -> Self:
        """Read a job file; paths in it are relative to its folder.

        Raises:
            ConfigError: It cannot be read, or a key is wrong; names file, key and remedy.
        """
        place = Path(path)
        return cls._of(read_toml(place), str(place), place.parent)

    @classmethod
    def from_text(cls, text: str, folder: Path | str = ".") -> Self:
        """Read the text of a job file; paths in it are relative to `folder`.

        Raises:
            ConfigError: A key is wrong; names it, and the remedy.
        """
        return cls._of(text, "job file", Path(folder))

    @classmethod
    def _of(cls, text: str, source: str, folder: Path) -> Self:
        job = cls.__new__(cls)
        job.file, job.text, job.folder = parse_job(text, source), text, folder
        return job

    @property
    def name(self) -> str:
        """For people."""
        return self.file.name

    @property
    def method(self) -> MethodSection:
        """The [method] table, with all defaults."""
        return self.file.method

    def replace(self, **keys: Any) -> Self:
        """The same job with other keys or tables, e.g. `job.replace(seed=2)`.

        Raises:
            ConfigError: A key is wrong; names it, and what to do.
        """
        tables = {**plain(self.file), **{key: plain(value) for key, value in keys.items()}}
        return type(self)._of(toml_text(tables), "kernfed.Job", self.folder)

    def plan(self) -> dict[str, Any]:
        """What the job asks for, set or by default, as JSON values: the keys that act, and no others."""
        return self.file.plan()

    def __eq__(self, other: object) -> bool:
        """Whether the keys are the same."""
        return isinstance(other, Job) and plain(self.file) == plain(other.file)

    def __hash__(self) -> int:
        """Of the name, which is part of what is compared."""
        return hash(self.name)

    def __repr__(self) -> str:
        """Name, method and data in a line."""
        data = self.file.data
        of = "" if data is None else f", {data.task} of {data.target} from {len(data.features)} columns"
        return f"<kernfed.Job {self.name}: {self.method.name}{of}>"


def as_job(job: Job | Path | str) -> Job:
    """A job, or the one of a file.

    Raises:
        ConfigError: As of `Job.from_toml`.
    """
    return job if isinstance(job, Job) else Job.from_toml(job)
