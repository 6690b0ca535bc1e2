"""Times to an event at made-up sites, and the programs that their statistics are compared with."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pytest

from kernfed.jobs.job_file import JobFile
from kernfed_simulation.federation import Rows

SIZES = {"ant": 40, "bee": 25, "cat": 33}
NAMES = ["event", "arm", "x"]
T = TypeVar("T")


def survival_job(
    method: str, features: list[str] | None = None, data: dict[str, Any] | None = None, **keys: Any
) -> JobFile:
    """A job on the columns of `rows_of`."""
    columns = {"task": "regression", "target": "time", "features": features or NAMES, **(data or {})}
    return JobFile.model_validate({"name": "s", "method": {"name": method, "event": "event", **keys}, "data": columns})


def rows_of(sizes: Mapping[str, int] | None = None, seed: int = 4, digits: int = 1) -> dict[str, Rows]:
    """Sites of different hazards: columns event, arm (0, 1 or 2) and x; the fewer digits, the more ties."""
    random = np.random.default_rng(seed)
    found = {}
    for i, (name, size) in enumerate((sizes or SIZES).items()):
        arm, x = random.integers(3, size=size), random.normal(size=size)
        true = random.exponential(4.0 + 2.0 * i, size) / np.exp(0.3 * arm + 0.5 * x)
        seen = random.uniform(1.0, 12.0, size)
        time = np.maximum(np.minimum(true, seen).round(digits), 10.0**-digits)
        table = np.column_stack([true <= seen, arm, x]).astype(np.float64)
        found[name] = Rows(table, time, np.zeros((0, 3)), np.zeros(0))
    return found


def pooled(rows: Mapping[str, Rows]) -> pd.DataFrame:
    """All rows in one place, with a column `site`."""
    parts = [pd.DataFrame(r.x_train, columns=NAMES).assign(time=r.y_train, site=name) for name, r in rows.items()]
    return pd.concat(parts, ignore_index=True)


def program(module: str) -> Any:
    """A module of an oracle; where tests count, it has to be there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module) if "CI" in os.environ else pytest.importorskip(module)


def quietly(call: Callable[[], T]) -> T:
    """What an oracle answers; it uses what newer releases of others warn of."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call()
