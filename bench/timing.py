"""Seconds of a computation, for every bench that times one in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable


def best(run: Callable[[], object], repeat: int = 3) -> float:
    """Least seconds of a few runs, after one to warm up."""
    run()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)
