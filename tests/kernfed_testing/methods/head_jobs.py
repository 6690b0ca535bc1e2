"""Jobs of the methods on a head, and clients for them in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.heads.finding import HeadFinding
from kernfed_testing.in_process import Bench, Outcome, bench, label_skewed_rows, make_job

CLASSES = ("a", "b", "c")
BARE: dict[str, Any] = {
    "data": "standardise = false\nclasses = ['a', 'b', 'c']",
    "features": 'kernel = "linear"\nintercept = false',
}
METHODS: dict[str, dict[str, Any]] = {
    "newton": {"loss": "cross-entropy"},
    "newton-paper": {"loss": "cross-entropy", "step": "paper"},
    "newton-lbfgs": {"loss": "cross-entropy", "solver": "lbfgs", "warm_start": False},
    "newton-paper-lbfgs": {"loss": "cross-entropy", "step": "paper", "solver": "lbfgs", "line_search": True},
    "newton-squared": {"loss": "squared", "solver": "cg", "warm_start": False},
    "fedavg": {"loss": "cross-entropy", "learning_rate": 0.05, "batch_size": 8},
    "fedprox": {"loss": "cross-entropy", "learning_rate": 0.05, "batch_size": 8},
    "fedsophia": {"learning_rate": 0.05, "batch_size": 8},
    "fednew": {},
}


def head_job(method: str = "newton", *, rounds: int = 6, columns: int = 6, **settings: Any) -> JobFile:
    """A job on three classes."""
    texts: dict[str, Any] = {
        "task": "classification",
        "data": "classes = ['a', 'b', 'c']",
        "features": 'kernel = "linear"',
    }
    texts |= {
        key: settings.pop(key)
        for key in ("task", "data", "features", "top", "cohort", "frequencies")
        if key in settings
    }
    chosen = {**METHODS.get(method, {"loss": "cross-entropy"}), **settings, "rounds": rounds}
    return make_job(method.partition("-")[0], num_columns=columns, **texts, **{k: _toml(v) for k, v in chosen.items()})


def _toml(value: Any) -> Any:
    return _Literal(str(value).lower()) if isinstance(value, bool) else value


class _Literal(str):
    """Text that is written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def clients(tmp_path: Path, **kwargs: Any) -> Bench:
    """Four clients of mostly one class each."""
    return bench(label_skewed_rows(), tmp_path, CLASSES, **kwargs)


def facts(done: Outcome) -> Mapping[str, Any]:
    """The last of what the job's record says of the head."""
    events = done.journal.events
    found = [e.finding for e in events if e.kind is EventKind.FINDING and e.message == HeadFinding.name]
    assert found[-1] is not None
    return found[-1]
