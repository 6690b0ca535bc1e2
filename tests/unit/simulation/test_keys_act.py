"""What a job's plan lists is what the product reads: every key of it, in runs of every method and variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.methods.registry import steps_of
from kernfed.section import MethodSection, Section
from kernfed_server.jobs.run import Run
from kernfed_simulation.run import simulate
from kernfed_testing.methods.variants import METHODS, job_of, sites

READ_AT_NEED = {"method.on_refusal", "method.wait_s"}
"""Where a client refuses; where a stream has no row yet."""


@contextmanager
def asks() -> Iterator[set[str]]:
    """Collect which steps clients are asked."""
    steps: set[str] = set()
    ask = InProcessExchange.ask

    async def noted(exchange: InProcessExchange, call: Call[Any]) -> Mapping[str, Any]:
        steps.add(call.request.step)
        return await ask(exchange, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessExchange, "ask", noted)
        yield steps


def table_of(section: Section) -> object:
    """Which table a section is: [method] is one, also where numbers were put in the place of its rules."""
    return MethodSection if issubclass(type(section), MethodSection) else id(section)


@contextmanager
def reads() -> Iterator[tuple[set[tuple[object, str]], list[int]]]:
    """Collect which keys of which tables are read, and how often a run asks whether it is to evaluate."""
    seen: set[tuple[object, str]] = set()
    asked: list[int] = []
    evaluates = Run.evaluates

    def read(section: Section, name: str) -> Any:
        seen.add((table_of(section), name))
        return object.__getattribute__(section, name)

    def counted(run: Run, round_num: int, last: int) -> bool:
        asked.append(round_num)
        return evaluates(run, round_num, last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Section, "__getattribute__", read, raising=False)
        patch.setattr(Run, "evaluates", counted)
        yield seen, asked


def keys_of(plan: Mapping[str, Any], section: Section, table: str) -> Iterator[tuple[str, Section, str]]:
    """Every key of a plan with its table."""
    for key, value in plan.items():
        inner = getattr(section, key)
        if isinstance(inner, Section):
            yield from keys_of(value, inner, f"{table}.{key}")
        else:
            yield f"{table}.{key}", section, key


@pytest.mark.parametrize("variant", METHODS)
def test_every_key_of_the_plan_is_read(tmp_path: Path, variant: str) -> None:
    """A run reads all keys of [method] and [features] in its plan, and asks for `evaluate_every` where it is listed.

    It asks no step but those that its method states, to which clients hold it.
    """
    job, files = job_of(METHODS[variant], tmp_path)
    refusing = "refused" in variant
    jobs = sites(tmp_path, refusing=refusing)
    with reads() as (seen, asked), asks() as steps:
        done = simulate(job, jobs, files=files)
    assert done.error is None, done.error
    assert steps <= (steps_of(job.method.name) or set())
    plan = job.plan()
    listed = list(keys_of(plan["method"], job.method, "method"))
    if "features" in plan:
        listed += keys_of(plan["features"], job.features, "features")
    unread = {path for path, section, key in listed if (table_of(section), key) not in seen} - {"method.name"}
    assert unread <= READ_AT_NEED - ({"method.on_refusal"} if refusing else set())
    assert ("evaluate_every" in plan) == bool(asked)
