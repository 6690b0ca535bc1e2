"""Packages from outside that a job uses: which they are, what each brings, and where it must be installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from kernfed import plugins
from kernfed.errors import PolicyError, VersionMismatchError
from kernfed.features.law import full_name
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Request
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.methods.finding import Finding
from kernfed.methods.registry import method_of
from kernfed.plugins import Plugin

COORDINATOR = "coordinator"
CLIENTS = "coordinator and clients"


@dataclass(frozen=True, slots=True)
class Used:
    """A package in a job."""

    version: str
    """As the coordinator has it."""
    brings: tuple[str, ...]
    """What the job uses of it, e.g. `method median`."""
    where: str
    """`COORDINATOR`, or `CLIENTS`: it answers requests there, or draws features."""


@dataclass(frozen=True, slots=True)
class PluginsFinding(Finding):
    """The packages from outside that a job uses, by their names."""

    name: ClassVar[str] = "plugins"

    packages: Mapping[str, Used]


def used_by(job: JobFile, workflow: str = "") -> dict[str, Used]:
    """The packages from outside that a job uses, by name; empty where it uses none.

    Args:
        job: The job.
        workflow: Module of the coordinator's half of its method, where that is known.
    """
    method = method_of(job.method)
    found: dict[Plugin, tuple[list[str], bool]] = {}

    def uses(plugin: Plugin | None, what: str, *, at_clients: bool = False) -> None:
        if plugin is not None:
            brings, also = found.get(plugin, ([], False))
            found[plugin] = [*brings, *([] if what in brings else [what])], also or at_clients

    uses(plugins.owner(method.settings.__module__), f"method {method.name}")
    uses(plugins.owner(workflow), f"method {method.name}")
    for request in method.steps or ():
        uses(plugins.owner(request.__module__), f"step {request.step}", at_clients=True)
    law = "features" not in job.unused_keys() and job.features.law
    if law and (point := plugins.find(plugins.FEATURES, law)):
        uses(point.plugin, f"law {law}", at_clients=True)
    return {
        plugin.name: Used(plugin.version, tuple(brings), CLIENTS if at_clients else COORDINATOR)
        for plugin, (brings, at_clients) in sorted(found.items())
    }


def parse_usable(text: str, source: str) -> JobFile:
    """Parse a job file, and check that all that it takes of packages from outside is here.

    Raises:
        ConfigError: As of `parse_job`; or no package that is installed here brings the law that the job names.
    """
    job = parse_job(text, source)
    check_installed(job)
    return job


def check_installed(job: JobFile) -> None:
    """Check that all that a job takes of packages from outside, beside its method, is here.

    Raises:
        ConfigError: No package that is installed here brings the law that the job names.
    """
    if "features" not in job.unused_keys() and job.features.law:
        full_name(job.features.law)


def asked_of_clients(job: JobFile) -> tuple[str, ...]:
    """The packages that every client of a job must have, each as `name version`, sorted."""
    return tuple(f"{name} {used.version}" for name, used in used_by(job).items() if used.where == CLIENTS)


def plugins_behind(request: Request[Any] | type[Request[Any]]) -> Iterator[tuple[Plugin, str]]:
    """Packages from outside that would compute the answer to a request, each with what it does, in words."""
    kind = type(request) if isinstance(request, Request) else request
    if (plugin := plugins.owner(kind.__module__)) is not None:
        yield plugin, f"the step {request.step} is its own"
    for field in fields(request) if isinstance(request, Request) else ():
        spec = getattr(request, field.name)
        if isinstance(spec, FeatureSpec) and spec.law:
            point = plugins.find(plugins.FEATURES, spec.law.rpartition(":")[2])
            if point is not None:
                yield point.plugin, f"the step {request.step} asks for features of its law"


def refuse_others(asked: Sequence[str], allowed: Sequence[str]) -> None:
    """Refuse a job that uses packages from outside otherwise than this client has them, or lets jobs use them.

    Args:
        asked: As of `asked_of_clients`, by the coordinator.
        allowed: `policy.plugins` of the client file.

    Raises:
        VersionMismatchError: One is not installed here, or in another release; names it.
        PolicyError: The client file does not name one.
    """
    here = {plugin.name: plugin for plugin in plugins.installed()}
    for text in asked:
        name, _, version = text.rpartition(" ")
        ours = next((plugin for own, plugin in here.items() if plugins.same(own, name)), None)
        if ours is None:
            raise VersionMismatchError(
                f"the job uses package {text[:200]!r} at its clients, which is not installed at this one; its "
                "administrator can install it and name it in policy.plugins, or leave this client out of cohort.clients"
            )
        if ours.version != version:
            raise VersionMismatchError(
                f"the job uses package {text[:200]!r}, and this client has release {ours.version}; install the same "
                "release of it at the coordinator and at all clients"
            )
        refuse_unnamed(ours, allowed, "the job uses it")


def refuse_strange(request: Request[Any] | type[Request[Any]]) -> None:
    """Refuse a step of which nobody can say whose it is, so that no key of the client file lets it run.

    Raises:
        PolicyError: Names the step and its module.
    """
    module = (type(request) if isinstance(request, Request) else request).__module__
    if plugins.is_strange(module):
        raise PolicyError(
            f"the step {request.step} is of the module {module}, which no package that is installed here has among its "
            "files; its administrator can install the package whose it is, and name that in policy.plugins",
            public=f"the step {request.step} is of no package that is installed at this client",
        )


def refuse_unnamed(plugin: Plugin, allowed: Sequence[str], why: str) -> None:
    """Refuse what a package from outside would do here where the client file does not name it.

    Raises:
        PolicyError: Names the package and the key.
    """
    if not any(plugins.same(plugin.name, name) for name in allowed):
        raise PolicyError(
            f"package {plugin} is installed at this client, but policy.plugins does not name it, and {why}; its "
            f'administrator can add "{plugin.name}" there'
        )
