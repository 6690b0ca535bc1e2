"""How long tests wait for what has to come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 200.0
"""So long that only a hang takes longer, also on a machine that has thirty times its work. pytest's limit is above."""


def until(condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """Wait until a condition holds, and return what it gave."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(0.1)
    return found
