"""Fields that requests got after their first release: which a request sets, and which a client does not know.

Messages only grow, so a new field has a default, and a client of a release before it passes the field over. That is
well where the field has its default. Where it has another value, such a client would compute something else without a
word. So clients say in their hello which of these fields they know, as `step:field`, or `step:field.part` for a field
of a part, and the coordinator asks nobody for what it does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from kernfed.federation.messages.base import Request, fields_of

_LATER: dict[type, tuple[str, ...]] = {}


def later_fields(request: type[Request[Any]]) -> tuple[str, ...]:
    """All fields of a request, and of its parts, that have a default, as clients state them."""
    found = _LATER.get(request)
    if found is None:
        found = _LATER[request] = tuple(f"{request.step}:{name}" for name in _defaulted(request))
    return found


def unknown_fields(request: Request[Any], known: Collection[str] | None) -> list[str]:
    """Fields that a request sets and a client does not know, sorted.

    Args:
        request: What the client is to be asked.
        known: What it stated; None or empty: it is of a release that states nothing.
    """
    if not later_fields(type(request)):
        return []
    names = {f"{request.step}:{name}" for name in _set(request)}
    return sorted(names - set(known) if known else names & {f"{request.step}:{name}" for name in request.young})


def stated_fields(requests: Iterable[type[Request[Any]]]) -> list[str]:
    """What a client that answers some requests says in its hello, sorted."""
    return sorted(name for request in requests for name in later_fields(request))


def _defaulted(message: type) -> Iterator[str]:
    has_default = {f.name for f in dataclasses.fields(message) if _default(f) is not dataclasses.MISSING}
    for field in fields_of(message):
        if field.name in has_default:
            yield field.name
        if field.nested:
            yield from (f"{field.name}.{name}" for name in _defaulted(field.item or field.type))


def _set(message: Any) -> Iterator[str]:
    defaults = {f.name: _default(f) for f in dataclasses.fields(message)}
    for field in fields_of(type(message)):
        value, default = getattr(message, field.name), defaults[field.name]
        if default is not dataclasses.MISSING and not field.dispensable and not _same(value, default):
            yield field.name
        if field.nested:
            for part in value if isinstance(value, tuple) else (value,):
                yield from (f"{field.name}.{name}" for name in _set(part))


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return value is default or np.array_equal(value, default)
    return bool(value == default)
