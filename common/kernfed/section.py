"""Tables of files as pydantic models: frozen, without unknown keys, and without keys that have no effect.

A key that acts only with some values of other keys says so: `Annotated[float, Only(trainer="fedavg")]`.
That one statement refuses the key elsewhere, leaves it out of the plan of a job, and is printed in the reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError, core_schema

Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
"""A name that a person gives to a job, a client, a data set and the like."""
ACCEPTED = "accepted"
"""In the context of a validation: the file was accepted before, so keys without effect are ignored, not refused."""


@dataclass(frozen=True, slots=True)
class Above:
    """Stands for the numbers above a limit."""

    limit: float


@dataclass(frozen=True, slots=True)
class Below:
    """Stands for the numbers below a limit."""

    limit: float


@dataclass(frozen=True, slots=True)
class Given:
    """Stands for all values but the empty one."""


GIVEN = Given()


@dataclass(frozen=True, slots=True, init=False)
class Only:
    """Where a key acts: where each key named here has one of its values. Of several, one must hold."""

    conditions: tuple[tuple[str, tuple[object, ...]], ...]

    def __init__(self, below: Mapping[str, object] | None = None, /, **conditions: object) -> None:
        """Name keys of the same table, each with a value or a tuple of values; None stands for an unset key.

        Args:
            below: The same for keys of tables below this one, dotted.
            conditions: For those of this one.
        """
        listed = tuple((k, v if isinstance(v, tuple) else (v,)) for k, v in {**(below or {}), **conditions}.items())
        object.__setattr__(self, "conditions", listed)

    def holds(self, section: Section) -> bool:
        """Whether a key acts in this table."""
        return all(any(_fits(_value_at(section, key), value) for value in values) for key, values in self.conditions)

    def words(self) -> list[str]:
        """Each condition as it is written in a file."""
        return [_words(key, values) for key, values in self.conditions]


@dataclass(frozen=True, slots=True)
class Unused:
    """A key of a job file that does nothing with a method, although it stands in a table of its own."""

    key: str
    """Dotted, e.g. `data.test_fraction`."""
    reason: str
    """What the method does instead, after "method NAME "."""
    where: Only = Only()
    """With which settings of the method."""
    tasks: tuple[str, ...] = ()
    """For which tasks; empty: all."""


class Section(BaseModel):
    """One table of a file: frozen, finite numbers only, unknown keys and keys without effect refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def value_in_effect(self, key: str) -> object:
        """A key's value as conditions see it; a table whose unset key stands for something else says so here."""
        return getattr(self, key)

    def idle_keys(self) -> dict[str, tuple[Only, ...]]:
        """Keys that do nothing in this table, set or not, each with where it would act."""
        scopes = {name: scopes_of(field.metadata) for name, field in type(self).model_fields.items()}
        return {name: found for name, found in scopes.items() if found and not any(s.holds(self) for s in found)}

    def plan(self) -> dict[str, Any]:
        """What the table asks for, as JSON values: the keys that act, set or by default, and no others."""
        idle, told = self.idle_keys(), self.model_dump(mode="json")
        for name in type(self).model_fields:
            if name in idle:
                del told[name]
            elif isinstance(value := getattr(self, name), Section):
                told[name] = value.plan()
        return told

    @model_validator(mode="after")
    def _has_no_idle_key(self, info: ValidationInfo) -> Self:
        if info.context and info.context.get(ACCEPTED):
            return self
        keys_by_scope: dict[tuple[Only, ...], list[str]] = {}
        for name, scopes in self.idle_keys().items():
            if name in self.model_fields_set:
                keys_by_scope.setdefault(scopes, []).append(name)
        if keys_by_scope:
            raise ValueError("; ".join(_refusal(keys, scopes) for scopes, keys in keys_by_scope.items()))
        return self


class MethodSection(Section):
    """The [method] table of a method."""

    name: str
    """The method's key; each method narrows it to that one text."""
    unused: ClassVar[tuple[Unused, ...]] = ()
    """Keys of other tables that do nothing with this method; of its own too, where that depends on the task."""

    @property
    def step_rows(self) -> int:
        """Rows of a gradient step, as the table says; 0: all of a client's, or the method takes no such steps."""
        rows = 0 if "batch_size" in self.idle_keys() else getattr(self, "batch_size", 0)
        return rows if isinstance(rows, int) else 0

    def unused_keys(self, task: str | None) -> Mapping[str, str]:
        """Keys of the job file that do nothing in a job with this table, each with the reason.

        Args:
            task: `data.task`; None in a job without data.
        """
        found = (u for u in self.unused if u.where.holds(self) and (not u.tasks or task in u.tasks))
        return {u.key: u.reason for u in found}


@dataclass(frozen=True, slots=True)
class KindOf:
    """Marks a table of which one key says what kind it is; a kind is loaded when a table of it is read."""

    key: str
    names: Collection[str]
    """Its values."""
    section: Callable[[str], type[Section]]
    """The kind of a value."""

    def kinds(self) -> dict[str, type[Section]]:
        """All of them, by the key's value."""
        return {name: self.section(name) for name in self.names}

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        """Read a table as the kind that it names."""
        return core_schema.with_info_plain_validator_function(self._read)

    def _read(self, table: Any, info: core_schema.ValidationInfo) -> Section:
        name = table.get(self.key) if isinstance(table, Mapping) else getattr(table, self.key, None)
        told = {"discriminator": repr(self.key)}
        if name is None:
            raise PydanticKnownError("union_tag_not_found", told)
        if not isinstance(name, str) or name not in self.names:
            known = ", ".join(map(repr, self.names))
            raise PydanticKnownError("union_tag_invalid", {**told, "tag": str(name), "expected_tags": known})
        return self.section(name).model_validate(table, context=info.context)


def annotations_in(annotation: Any) -> list[Any]:
    """Types inside an annotation, outermost first."""
    return [annotation, *(part for arg in get_args(annotation) for part in annotations_in(arg))]


def description(field: FieldInfo) -> str:
    """What a field means, in a line, also where its type says it; empty where nothing does."""
    inner = (m for part in annotations_in(field.annotation) for m in get_args(part)[1:])
    found = field.description or next((m.description for m in inner if getattr(m, "description", None)), "")
    return " ".join(found.split())


def scopes_of(metadata: Iterable[object]) -> tuple[Only, ...]:
    """Where a field acts, from its annotation; empty: everywhere."""
    return tuple(m for m in metadata if isinstance(m, Only))


def _refusal(keys: list[str], scopes: tuple[Only, ...]) -> str:
    many = len(keys) > 1
    where = "; or ".join(", ".join(scope.words()) for scope in scopes)
    return (
        f"{', '.join(keys)}: belong{'' if many else 's'} to {where}: set that, or remove the key{'s' if many else ''}"
    )


def _value_at(section: Section, key: str) -> object:
    *tables, last = key.split(".")
    for table in tables:
        section = getattr(section, table)
    return section.value_in_effect(last)


def _fits(value: object, wanted: object) -> bool:
    if isinstance(wanted, Given):
        return bool(value)
    if isinstance(wanted, Above):
        return isinstance(value, int | float) and value > wanted.limit
    if isinstance(wanted, Below):
        return isinstance(value, int | float) and value < wanted.limit
    return value == wanted


def _words(key: str, values: tuple[object, ...]) -> str:
    if values == (None,):
        return f"no {key}"
    if values == (GIVEN,):
        return f"{key} given"
    if len(values) == 1 and isinstance(values[0], Above | Below):
        sign = ">" if isinstance(values[0], Above) else "<"
        return f"{key} {sign} {values[0].limit:g}"
    return f"{key} = {' or '.join(_value(v) for v in values)}"


def _value(value: object) -> str:
    if isinstance(value, Above | Below):
        return f"a number {'above' if isinstance(value, Above) else 'below'} {value.limit:g}"
    return json.dumps(value)
