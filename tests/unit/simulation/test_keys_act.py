"""What a job's plan lists is what the product reads: every key of it, in runs of every method and variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.registry import steps_of
from kernfed.section import MethodSection, Section
from kernfed_client.data.local_job import LocalJob
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows
from kernfed_simulation.run import simulate
from kernfed_testing.distill import made_job
from kernfed_testing.personalise import clients, without
from kernfed_testing.variants import installed

SITES = ("ant", "bee", "cat")
COLUMNS = ["x0", "x1", "x2"]
NETWORK: dict[str, Any] = {"kind": "mlp", "widths": [3]}
HEAD: dict[str, Any] = {"name": "newton", "loss": "squared", "rounds": 3}
PERSONAL: dict[str, Any] = {"name": "personalise", "num_frequencies": 10}
CONSTANTS = {"c_q": 1.0, "c_p": 1.0}
NOISE = {"noise": {"epsilon": 1.0, "delta": 1e-5}}
WEIGHED: dict[str, Any] = {"name": "reweight", "rounds": 2, "ratios": {"num_frequencies": 10}}
STREAM: dict[str, Any] = {"rounds": 4, "metrics_every": 2, "batch_rows": 2, "wait_s": 0.01}
SMALL: dict[str, Any] = {**STREAM, "num_kernels": 4}

METHODS = installed(
    {
        "local": {"name": "local"},
        "dkrr": {"name": "dkrr"},
        "newton": {"name": "newton", "rounds": 2},
        "newton paper": {"name": "newton", "step": "paper", "rounds": 2, "ridge": 1.0},
        "head": {**HEAD, "rounds": 60},
        "head exact": {**HEAD, "solver": "exact", "warm_start": False},
        "head cg": {**HEAD, "solver": "cg", "validation_fraction": 0.0, "rounds": 60},
        "head lanczos": {**HEAD, "solver": "lanczos", "step": "paper"},
        "head lbfgs": {**HEAD, "solver": "lbfgs", "step": "paper", "line_search": True},
        "fedavg": {"name": "fedavg", "rounds": 2},
        "fedavg head": {"name": "fedavg", "loss": "squared", "rounds": 2},
        "fedprox": {"name": "fedprox", "rounds": 2},
        "fedprox head": {"name": "fedprox", "loss": "squared", "rounds": 2},
        "fedsophia": {"name": "fedsophia", "loss": "squared", "rounds": 2},
        "fednew": {"name": "fednew", "loss": "squared", "rounds": 2},
        "distill": {"name": "distill"},
        "distill drawn": {"name": "distill", "client_fraction": 0.7, "uploads": "stale"},
        "personalise": PERSONAL,
        "personalise kept": {**PERSONAL, "keep_shared": True},
        "personalise paper": {**PERSONAL, "weights": "paper"},
        "personalise noise": {**PERSONAL, **NOISE, "weights": "paper", "trainer": "newton", "scale_columns": False},
        "personalise exact": {"name": "personalise", "embedding_kernel": "linear", "weights": "exact", **CONSTANTS},
        "personalise newton": {**PERSONAL, "trainer": "newton", "rounds": 3},
        "personalise fedavg": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "network": NETWORK},
        "personalise alike": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "network_scale": "all"},
        "personalise average": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "optimiser": "average"},
        "reweight": WEIGHED,
        "reweight refused": {**WEIGHED, "on_refusal": "leave-out", "ratios": {"denominator": "client"}},
        "reweight target": {
            **WEIGHED,
            "scope": "target",
            "target": "ant",
            "ratios": {"divergence": "robust", "num_steps": 20},
        },
        "reweight own": {**WEIGHED, "scope": "own", "trainer": "adam", "network": {**NETWORK, "batch_norm": "average"}},
        "reweight fedavg": {**WEIGHED, "trainer": "fedavg", "ratios": {"model": "mlp", "num_steps": 20}},
        "online": {"name": "online", **STREAM},
        "online gradients": {"name": "online", **SMALL},
        "online paper": {
            "name": "online",
            **STREAM,
            "rates": "paper",
            "lengthscales": [0.5, 1.0],
            "num_frequencies": 8,
        },
        "ofskl": {"name": "ofskl", **STREAM},
        "ofmkl-avg": {"name": "ofmkl-avg", **SMALL},
        "vm-kofl": {"name": "vm-kofl", **SMALL},
        "em-kofl": {"name": "em-kofl", **SMALL},
        "perfedavg": {"name": "perfedavg", **STREAM},
        "probe": {"name": "probe", "rounds": 2, "payload_bytes": 80},
    }
)

READ_AT_NEED = {"method.on_refusal", "method.wait_s"}
"""Where a client refuses; where a stream has no row yet."""


def rows_of() -> dict[str, Rows]:
    """Three clients whose test rows lie beside their training rows."""
    random = np.random.default_rng(3)

    def made(num: int, shift: float) -> tuple[Any, Any]:
        x = random.normal(size=(num, 3)) + shift
        return x, np.sin(x).sum(axis=1)

    return {name: Rows(*made(40, 0.0), *made(16, 0.2)) for name in SITES}


def job_of(method: Mapping[str, Any], folder: Path) -> tuple[JobFile, dict[str, bytes]]:
    """A job of the method with no key beside it but what it needs."""
    if method["name"] == "distill":
        job, _, files = made_job(folder, **{k: v for k, v in method.items() if k != "name"})
        return job, files
    data = {"task": "regression", "target": "y", "features": COLUMNS, "standardise": "noise" not in method}
    whole: dict[str, Any] = {"name": "job", "method": method, **({} if method["name"] == "probe" else {"data": data})}
    if "features" in JobFile.model_validate(whole).plan():
        whole["features"] = {"num_frequencies": 10}
    return JobFile.model_validate(whole), {}


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


def sites(folder: Path, *, refusing: bool) -> dict[str, LocalJob]:
    """The clients; they share samples, but for one where asked."""
    policies: dict[str, Any] = {name: {"allow": list(Kind)} for name in SITES}
    if refusing:
        policies["cat"] = without(Kind.UNLABELLED_SAMPLE)
    return clients(rows_of(), folder, **policies)


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
