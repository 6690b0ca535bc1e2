"""Methods of packages outside the project, as docs/add-a-method.md shows them: known by entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.federation import Federation
from kernfed_testing.forked import run_module
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.installed import write_package
from kernfed_testing.places import HEART, ROOT

MEDIAN = ROOT / "examples" / "median"

MESSAGES = """
from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Kind, NumOutputs, Reply, Request, Rows, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMean(Reply):
    num_rows: Rows
    mean: Annotated[Array, Shape("C")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMeanRequest(Request[TargetMean]):
    step = "acme.target_mean"
    reply = TargetMean
    kinds = (Kind.MEAN_EMBEDDING,)

    num_outputs: NumOutputs
"""
METHOD = """
from typing import Literal

from acme_steps.shared.messages import TargetMeanRequest
from kernfed.methods.base import Method, table
from kernfed.section import MethodSection


class Settings(MethodSection):
    name: Literal["acme-mean"]
    fail: bool = False


METHODS = table(Method(Settings, rounds=lambda _: 1, steps=(TargetMeanRequest,)))
"""
WORKFLOW = """
import numpy as np

from acme_steps.shared.messages import TargetMeanRequest
from kernfed_server.methods.base import Workflow


async def run(setup, settings, cohort, run):
    async for round_num in run.rounds(1):
        replies = await cohort.ask(TargetMeanRequest(num_outputs=setup.num_outputs))
        if settings.fail:
            return {}["nothing"]
        weights = np.zeros((setup.num_features, setup.num_outputs)) + np.mean([r.mean for r in replies.values()])
        await run.record(round_num, {"weights": weights})
    return weights


WORKFLOWS = {"acme-mean": Workflow(run)}
"""
STEPS = """
from acme_steps.shared.messages import TargetMean, TargetMeanRequest


def target_mean(job, request):
    return TargetMean(num_rows=job.num_rows, mean=job.y_train.mean(0).numpy() + 2.0)


STEPS = {TargetMeanRequest: target_mean}
"""
ROOMS = {
    "kernfed.methods": {"acme": "acme_steps.shared"},
    "kernfed_server.methods": {"acme": "acme_steps.coordinator"},
    "kernfed_client.methods": {"acme": "acme_steps.client"},
}
MODULES = {
    "acme_steps/__init__.py": "",
    "acme_steps/shared/__init__.py": "",
    "acme_steps/shared/messages.py": MESSAGES,
    "acme_steps/shared/method.py": METHOD,
    "acme_steps/coordinator/__init__.py": "",
    "acme_steps/coordinator/workflow.py": WORKFLOW,
    "acme_steps/client/__init__.py": "",
    "acme_steps/client/steps.py": STEPS,
}


def path_of(*places: Path) -> str:
    """Of an interpreter that finds what lies there."""
    return os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def median(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata that an installation of the example in place writes."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((MEDIAN / "pyproject.toml").read_text())["project"]
    write_package(site, project["name"], project["entry-points"], version=project["version"], edited=MEDIAN)
    return site


def test_the_example_passes_its_own_tests(median: Path) -> None:
    """The package runs in simulations where it is installed; elsewhere the job is refused with what is known there."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=MEDIAN,
        env={**os.environ, "PYTHONPATH": path_of(median, MEDIAN)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    dealt = ("--data", HEART / "data" / "cleveland.csv", "--partition", "iid", "--clients", 4)
    alone = run_module("kernfed_simulation", MEDIAN / "heart.toml", *dealt)
    told = " ".join(alone.stderr.split())
    assert alone.returncode == 3
    assert "'name' is 'median', not known here" in told
    assert "packages from outside that are installed here: none. Correct the name, or install the package" in told


async def test_packages_run_over_the_network(tmp_path: Path, median: Path) -> None:
    """One at the coordinator alone runs steps that all clients have; one with steps of its own those who named it."""
    site, older = tmp_path / "site", tmp_path / "older"
    write_package(site, "acme-steps", ROOMS, MODULES, version="2.0")
    write_package(older, "acme-steps", ROOMS, MODULES, version="1.0")
    named = '[policy]\nplugins = ["acme_steps"]'
    environment = {
        "coordinator": {"PYTHONPATH": path_of(median, MEDIAN, site)},
        **{name: {"PYTHONPATH": path_of(site)} for name in ("a", "c")},
        "d": {"PYTHONPATH": path_of(older)},
    }
    settings = {"a": named, "d": named}
    root = tmp_path / "federation"
    root.mkdir()
    async with Federation(root, "acde", processes=True, environment=environment, settings=settings) as fed:
        ended = await fed.run(fed.job("trimmed-mean", rounds=2, trim=0.3))
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert ended.info.round_num == 2
        await fed.operator.fetch(ended.info.job_id, tmp_path / "out", ["job.json"])
        used = json.loads((tmp_path / "out" / "job.json").read_text())["plugins"]["kernfed-median"]
        assert (used["version"], used["where"], used["releases"]) == ("0.1.0", "coordinator", ["0.1.0"])

        ended = await fed.run(fed.job("acme-mean", cohort_preflight="quorum", cohort_min_fraction=0.2))
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        left_out = " ".join(event.message for event in ended.of(EventKind.NOTE))
        assert "'acme-steps 2.0' at its clients, which is not installed at this one" in left_out
        assert "'acme-steps 2.0', and this client has release 1.0; install the same release" in left_out
        assert "acme-steps 2.0 is installed at this client, but policy.plugins does not name it" in left_out
        assert {e.client for e in ended.of(EventKind.CLIENT_FAILED)} == {"c", "d", "e"}

        ended = await fed.run(fed.job("acme-mean", "a", fail=True))
        assert ended.info.error_reason == "PLUGIN_FAILED"
        assert "method acme-mean, of package acme-steps 2.0, raised KeyError: 'nothing'" in ended.info.error_message
