"""What reads and writes JSON by a type's annotations, once for each type: making one takes tens of milliseconds."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The adapter of a type, e.g. a dataclass or `tuple[Plan, ...]`."""
    return TypeAdapter(kind)
