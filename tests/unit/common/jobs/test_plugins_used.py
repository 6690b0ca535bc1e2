"""A job's packages from outside: which they are, and what a client without one, or with another release, says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed.errors import ConfigError, KernfedError, PolicyError, VersionMismatchError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.data import MapFeaturesRequest
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.jobs.plugins_used import (
    CLIENTS,
    COORDINATOR,
    PluginsFinding,
    asked_of_clients,
    parse_usable,
    plugins_behind,
    refuse_others,
    used_by,
)
from kernfed.methods.registry import METHODS
from kernfed.methods.ridge.messages import LocalSolveRequest
from kernfed.plugins import Plugin
from kernfed_testing.machine.installed import on_path, write_package

JOB = """
name = "j"
[method]
name = "dkrr"
[data]
task = "regression"
target = "y"
features = ["a", "b"]
[features]
num_frequencies = 8
lengthscale = 1.0
"""
CAUCHY = Plugin("acme-laws", "2.1")


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[None]:
    """A package with a law and rooms."""
    points = {"kernfed.features": {"cauchy": "acme_laws:CAUCHY"}}
    rooms = {f"acme_laws/rooms/{name}.py": "" for name in ("method", "messages", "workflow")}
    write_package(tmp_path, "acme-laws", points, {"acme_laws/__init__.py": "", **rooms}, version="2.1")
    with on_path(tmp_path):
        yield


def with_law(law: str = "cauchy") -> JobFile:
    return parse_job(JOB + f'law = "{law}"\n')


def test_a_job_of_our_own_parts_uses_none() -> None:
    """Nothing is asked of clients."""
    assert used_by(parse_job(JOB)) == {}
    assert asked_of_clients(parse_job(JOB)) == ()


def test_a_law_is_needed_at_the_clients() -> None:
    """Both ends draw its features, so both need the same release; the finding keeps it."""
    used = used_by(with_law())
    assert {name: (u.version, u.brings, u.where) for name, u in used.items()} == {
        "acme-laws": ("2.1", ("law cauchy",), CLIENTS)
    }
    assert PluginsFinding.from_json(PluginsFinding(used).to_json()) == PluginsFinding(used)
    assert asked_of_clients(with_law()) == ("acme-laws 2.1",)
    assert parse_usable(JOB + 'law = "cauchy"\n', "job file") == with_law()
    with pytest.raises(ConfigError, match=r"law is 'gauss', which no package .* known are: cauchy"):
        parse_usable(JOB + 'law = "gauss"\n', "job file")


def test_where_a_method_is_needed_follows_from_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps that every client has its package is the coordinator's alone; with one of its own it is not."""
    job = parse_job(JOB)
    monkeypatch.setattr(METHODS["dkrr"].settings, "__module__", "acme_laws.rooms.method")
    assert used_by(job)["acme-laws"].where == COORDINATOR
    assert asked_of_clients(job) == ()
    monkeypatch.setattr(LocalSolveRequest, "__module__", "acme_laws.rooms.messages")
    assert used_by(job, "acme_laws.rooms.workflow")["acme-laws"].brings == ("method dkrr", "step ridge.local_solve")
    assert asked_of_clients(job) == ("acme-laws 2.1",)
    assert list(plugins_behind(LocalSolveRequest)) == [(CAUCHY, "the step ridge.local_solve is its own")]


@pytest.mark.parametrize(
    ("asked", "allowed", "error", "expected"),
    [
        ("acme-laws 2.1", ["Acme_Laws"], None, ""),
        (
            "acme-laws 2.1",
            [],
            PolicyError,
            r"acme-laws 2\.1 is installed .* policy\.plugins does not .*add \"acme-la",
        ),
        (
            "acme-laws 2.0",
            ["acme-laws"],
            VersionMismatchError,
            r"'acme-laws 2\.0', and this client has release 2\.1; ",
        ),
        (
            "acme-steps 1.0",
            ["acme-steps"],
            VersionMismatchError,
            r"'acme-steps 1\.0' at its clients, which is not",
        ),
    ],
)
def test_a_client_says_what_it_lacks(
    asked: str, allowed: list[str], error: type[KernfedError] | None, expected: str
) -> None:
    """Package, release and remedy are told: install it, the same release of it, or name it in the client file."""
    if error is None:
        refuse_others([asked], allowed)
        return
    with pytest.raises(error, match=expected):
        refuse_others([asked], allowed)


def test_a_signed_file_holds_the_law() -> None:
    """A coordinator cannot ask for features of another law than the operator signed, and a policy sees whose it is."""
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, 1.0, 8, 0, "acme-laws:cauchy")
    request = MapFeaturesRequest(features=spec, num_outputs=1)
    assert "asks for law cauchy, and the job file says" in contradiction(parse_job(JOB + "seed = 0\n"), request)
    assert contradiction(parse_job(JOB + 'seed = 0\nlaw = "cauchy"\n'), request) == ""
    assert [plugin for plugin, _ in plugins_behind(request)] == [CAUCHY]
