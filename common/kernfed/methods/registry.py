"""Every method there is, by name; the one table that all others follow."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

from kernfed.federation.messages import choosing, data, evaluation, sums
from kernfed.federation.messages.base import requests_in
from kernfed.methods import rooms
from kernfed.methods.base import Method
from kernfed.section import KindOf, MethodSection

METHODS: Mapping[str, Method[Any]] = rooms.ByMethod(rooms.HOME, "method", "METHODS")

AnyMethod = Annotated[MethodSection, KindOf("name", METHODS, lambda name: METHODS[name].settings)]
"""The [method] table of a job file: the settings of the method that its `name` chooses."""


SHARED_REQUESTS = requests_in(data, evaluation, choosing, sums)
"""Those that jobs of every method may send."""
SHARED = frozenset(request.step for request in SHARED_REQUESTS)
"""Wire names of their steps."""


@functools.lru_cache(maxsize=64)
def steps_of(method: str) -> frozenset[str] | None:
    """Wire names of the steps that jobs of a method may ask.

    Returns:
        None where no method of the name is here, or where it does not state its steps.
    """
    known = METHODS.get(method)
    return None if known is None or known.steps is None else SHARED | {request.step for request in known.steps}


def method_of(settings: MethodSection) -> Method[Any]:
    """The method that a [method] table belongs to."""
    return METHODS[settings.name]
