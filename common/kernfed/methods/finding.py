"""A method's own result, as a typed value with one writer and one reader of its JSON.

Each room has its findings in a module `finding`: the coordinator publishes them, the report and `kernfed job show` read
them from the job's `findings.json`, which an earlier release may have written.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, ClassVar, Self, TypeVar, Union

F = TypeVar("F", bound="Finding")
T = TypeVar("T")

UNLESS_NONE = {"unless_none": True}
"""Metadata of a field that has no key in the JSON where it is None."""

Told = Mapping[str, Mapping[str, float]]
"""Model measured to metric to value."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Base of all findings; fields are plain values, tuples, mappings by text, and dataclasses of these."""

    name: ClassVar[str]
    """Under which it is published; a later one of the same name takes its place."""

    def to_json(self) -> dict[str, Any]:
        """JSON values by field name, in the order of the fields."""
        written: dict[str, Any] = _plain(self)
        return written

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave; a missing key is the field's default, an unknown key is passed over.

        Raises:
            TypeError: A key is missing whose field has no default.
        """
        found: Self = _typed(cls, data)
        return found


@dataclass(frozen=True, slots=True)
class ResolvedFinding(Finding):
    """Numbers that stand for rules of the job file, by the key of [method]."""

    name: ClassVar[str] = "resolved"

    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BegunFinding(Finding):
    """Keys of a job that goes on by the defaults of the release that began it, dotted, with these."""

    name: ClassVar[str] = "begun"

    values: Mapping[str, Any]

    @classmethod
    def of(cls, table: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> Self:
        """What differs between the plan of a table as this release reads it, and that by which the job goes on."""
        return cls({f"{table}.{key}": value for key, value in then.items() if key not in now or now[key] != value})

    def put_into(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """A job's settings by table and key, with these values in their places."""
        found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
        for key, value in self.values.items():
            table, _, name = key.rpartition(".")
            (found[table] if table else found)[name] = value
        return found


def reading(kind: type[F], show: Callable[[F], T]) -> Callable[[Mapping[str, Any]], T]:
    """A function of a finding as a function of its JSON."""
    return lambda data: show(kind.from_json(data))


def told(scores: Mapping[str, Mapping[str, float]]) -> Told:
    """Metrics as plain numbers."""
    return {model: {name: float(value) for name, value in of.items()} for model, of in scores.items()}


_PLAIN = frozenset({float, int, str, bool, type(None)})
"""Types of values that are JSON as they are; a matrix between clients holds many."""


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value):
        parts = [(f, getattr(value, f.name)) for f in fields(value)]
        return {f.name: _plain(part) for f, part in parts if part is not None or not f.metadata.get("unless_none")}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _typed(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: _typed(hint, value[name]) for name, hint in _hints(kind).items() if name in value})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _typed(next(k for k in inner if k is not type(None)), value)
    if origin is tuple and inner[0] in _PLAIN:
        return tuple(map(inner[0], value))
    if origin is tuple:
        return tuple(_typed(inner[0], part) for part in value)
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): _typed(inner[1], part) for key, part in value.items()}
    return value if kind is Any else kind(value)


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}
