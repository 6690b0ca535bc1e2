"""`[sweep]` of a job file: values of some of its keys, at every combination of which the job is to run.

It is for the commands that run sweeps. A job as it is submitted has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from kernfed.jobs.job_file import JobFile
from kernfed.jobs.toml_file import read_toml, tables_of, validated
from kernfed.section import Section


class SweepSection(Section):
    """The combinations of a sweep, and how they are ranked."""

    keys: dict[str, list[Any]] = Field(
        {},
        description="Keys of the job file, each with its values, as --sweep has them: "
        '`{ ridge = [0.01, 0.1], "features.lengthscale" = [2, 5] }`; empty: the job as it is.',
    )
    validation: float | None = Field(
        None,
        ge=0,
        le=0.9,
        description="Share of each client's rows that ranks combinations; 0: the test rows do. unset: 0.2, without "
        "`keys` 0.",
    )
    repeats: int = Field(
        1,
        ge=1,
        le=100,
        description="Seeds for each combination, from the job's own up, whose mean and standard error are told.",
    )

    @field_validator("keys", mode="before")
    @classmethod
    def _dotted(cls, value: object) -> object:
        return dict(_dotted(value)) if isinstance(value, Mapping) else value

    @field_validator("keys")
    @classmethod
    def _have_values(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if empty := [key for key, values in value.items() if not values]:
            raise ValueError(f"{empty[0]} has no values; write e.g. {empty[0]} = [0.01, 0.1], or remove it")
        return value


def load_swept(path: Path) -> tuple[JobFile, str, SweepSection | None]:
    """Read a job file that may have a sweep; returns the job without it, the file's text, and the sweep.

    Raises:
        ConfigError: Names the file, the key and the remedy.
    """
    text = read_toml(path)
    tables = tables_of(text, str(path))
    given = tables.pop("sweep", None)
    job = validated(JobFile, tables, str(path))
    if given is None:
        return job, text, None
    return job, text, validated(SweepSection, given, f"{path}: [sweep]")


def _dotted(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of tables in tables as dotted ones, since TOML takes `features.lengthscale` for such."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
