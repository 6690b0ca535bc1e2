"""Values that a person has at hand in Python, as those that a job file holds."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from kernfed.section import Section


def plain(value: Any) -> Any:
    """Tables as dicts of the keys that were set; arrays, columns of data frames and tuples as lists; paths as text."""
    if isinstance(value, Section):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):  # of numpy and pandas, told without loading either
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return value
