"""Tests of `kernfed.python.job`: a job made in Python is the job of a file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernfed
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.jobs.toml_file import validated
from kernfed.methods.registry import method_of
from kernfed.python.job import as_job
from kernfed.python.plain import plain
from kernfed.python.section_classes import WRITTEN, classes
from kernfed.section import MethodSection
from kernfed_testing.places import HEART

DATA = kernfed.Data(task="regression", target="y", features=["a", "b"])

NEEDS = {"Distill": {"public": "public.csv"}}
"""Keys without a default."""


def _refuses_classes(method: MethodSection) -> bool:
    try:
        method_of(method).check(method, LearningTask.BINARY)
    except ValueError:
        return True
    return False


def test_its_arguments_are_the_keys_of_a_job_file() -> None:
    """None is missing and none is invented."""
    assert set(inspect.signature(kernfed.Job).parameters) == JobFile.model_fields.keys() - set(WRITTEN)


@pytest.mark.parametrize("name", sorted(name for name, cls in classes().items() if issubclass(cls, MethodSection)))
def test_its_text_is_a_job_file(name: str) -> None:
    """What is submitted is read as the same job, for every method that needs no more than data."""
    method = getattr(kernfed, name)(**NEEDS.get(name, {}))
    task: Any = "regression" if _refuses_classes(method) else "binary"
    data = None if name == "Probe" else kernfed.Data(task=task, target="y", features=["a", "b"])
    job = kernfed.Job(name="x", method=method, data=data)
    assert parse_job(job.text) == job.file
    assert kernfed.Job.from_text(job.text) == job


def test_values_at_hand_in_python_are_taken() -> None:
    """Columns of a frame, arrays, numbers of numpy, tuples and dicts mean what they do in a file."""
    frame = pd.DataFrame({"a": [1.0], "b": [2.0], "y": [3.0]})
    job = kernfed.Job(
        name="x",
        seed=np.int64(3),  # type: ignore[arg-type]  # an integer all the same
        method={"name": "newton", "ridge": np.float64(0.5)},
        data={"task": "regression", "target": "y", "features": frame.columns[:2], "ranges": {"a": (0, 9)}},
        features=kernfed.Features(lengthscale=np.array([1.0, 2.0])),  # type: ignore[arg-type]  # as above
        cohort={"clients": {"south", "north"}},
    )
    assert job.file.seed == 3
    assert job.file.data is not None
    assert job.file.data.features == ["a", "b"]
    assert job.file.features.lengthscale == [1.0, 2.0]
    assert job.file.cohort.clients == ["north", "south"]
    assert parse_job(job.text) == job.file


def test_a_file_is_a_job() -> None:
    """`from_toml` keeps text and folder; a path stands for its job; a copy may have other keys."""
    path = HEART / "newton.toml"
    job = kernfed.Job.from_toml(path)
    assert job.text == path.read_text()
    assert job.folder == HEART
    assert as_job(str(path)) == job == as_job(job)
    assert (job.name, job.method.name) == ("heart-newton", "newton")
    assert repr(job) == "<kernfed.Job heart-newton: newton, binary of disease from 10 columns>"
    other = job.replace(seed=7, method=kernfed.Dkrr())
    assert (other.file.seed, other.method.name, other.folder) == (7, "dkrr", HEART)
    assert other != job
    assert job.plan()["method"]["ridge"] == 0.01


@pytest.mark.parametrize(
    "keys",
    [
        {"name": "Bad Name", "method": {"name": "dkrr"}, "data": plain(DATA)},
        {"name": "x", "method": {"name": "newton"}},
        {"name": "x", "method": {"name": "nwton"}, "data": plain(DATA)},
        {"name": "x", "method": {"name": "newton", "rigde": 1}, "data": plain(DATA)},
        {"name": "x", "method": {"name": "local"}, "data": plain(DATA), "evaluate_every": 2},
        {"name": "x", "method": {"name": "dkrr"}, "data": plain(DATA), "seed": "three"},
    ],
)
def test_wrong_keys_get_the_sentences_of_the_file(keys: dict[str, Any]) -> None:
    """Only where they stand is named otherwise."""
    with pytest.raises(ConfigError) as here:
        kernfed.Job(**keys)
    with pytest.raises(ConfigError) as there:
        validated(JobFile, keys, "kernfed.Job")
    assert str(here.value) == str(there.value)
    assert str(here.value).startswith("kernfed.Job: ")


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    """Path, key and remedy, as the commands say them."""
    with pytest.raises(ConfigError, match=r"missing\.toml: no such file"):
        kernfed.Job.from_toml(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match=r"job file: method: missing; add it"):
        kernfed.Job.from_text('name = "x"')
    with pytest.raises(ConfigError, match=r"kernfed\.Job: sede: unknown key; did you mean 'seed'\?"):
        kernfed.Job.from_toml(HEART / "newton.toml").replace(sede=1)
