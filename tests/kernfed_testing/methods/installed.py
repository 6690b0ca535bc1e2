"""Methods that tests try, without those that are not installed: a room can be taken away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kernfed.methods.registry import METHODS

V = TypeVar("V")
STREAMING = tuple(name for name, method in METHODS.items() if method.reads_stream)
"""Methods that learn from streams."""


def installed(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Variants by label, each a [method] table with its `name`."""
    return {label: dict(variant) for label, variant in variants.items() if variant["name"] in METHODS}


def cases(found: Iterable[tuple[str, V]]) -> list[tuple[str, V]]:
    """Those whose first part is a job file's text, or a [method] table's, that names a method which is installed."""
    names = "|".join(METHODS)
    return [(text, value) for text, value in found if re.search(rf'name = "({names})"', text)]
