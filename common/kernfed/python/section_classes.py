"""Makes the classes of `kernfed.python.sections`.

Their names come from the registry of methods and from the job file's own model, so that a method from outside has its
class too. A class takes the keys of its table, checks them as a file's are checked, and tells a wrong key by the same
sentence.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from kernfed.errors import ConfigError
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.toml_file import validated
from kernfed.methods.registry import METHODS
from kernfed.python.plain import plain
from kernfed.section import KindOf, Section, description


@functools.cache
def classes() -> Mapping[str, type[Section]]:
    """Every class by its name: those of methods, and of the job file's other tables."""
    found = {
        class_name(method.settings): _class("method", method.settings, {"name": name})
        for name, method in METHODS.items()
    }
    for key, field in JobFile.model_fields.items():
        if (section := _section(field)) is not None and key not in WRITTEN:
            found[class_name(section)] = _class(key, section, {})
    return found


WRITTEN = ("files", "former")
"""Tables of a job file that no person writes: submission does."""


def class_name(section: type[Section]) -> str:
    """What the class of a table is called."""
    return section.__name__.removesuffix("Settings").removesuffix("Section")


def _section(field: FieldInfo) -> type[Section] | None:
    if any(isinstance(mark, KindOf) for mark in field.metadata):
        return None  # each of its kinds has a class
    kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
    known = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
    return known[0] if len(known) == 1 else None


def _class(key: str, section: type[Section], fixed: Mapping[str, Any]) -> type[Section]:
    """A subclass of a table's model whose wrong keys are told as those of a file."""
    name = class_name(section)
    field = JobFile.model_fields[key]
    parts: Any = {key: (field.annotation, field)}

    def __init__(self: Section, **keys: Any) -> None:  # noqa: N807  # it becomes the class's own
        if twice := sorted(set(fixed) & set(keys)):
            raise ConfigError(f"kernfed.{name}: {key}.{twice[0]}: the class says it; remove the key")
        table = {**fixed, **plain(keys)}
        part = create_model("Part", **parts)
        validated(part, {key: table}, f"kernfed.{name}", whole=JobFile)
        BaseModel.__init__(self, **table)

    def __repr__(self: Section) -> str:  # noqa: N807  # as above
        given = [k for k in section.model_fields if k in self.model_fields_set and k not in fixed]
        return f"kernfed.{name}({', '.join(f'{k}={plain(getattr(self, k))!r}' for k in given)})"

    def body(space: dict[str, Any]) -> None:
        own = {k: section.model_fields[k].annotation for k in fixed}
        space |= {
            "__init__": __init__,
            "__repr__": __repr__,
            "__str__": __repr__,
            "__doc__": _doc(section, fixed),
            "__module__": "kernfed",
        }
        space |= {"__annotations__": own, **fixed}

    return types.new_class(name, (section,), exec_body=body)


def _doc(section: type[Section], fixed: Mapping[str, Any]) -> str:
    """What the table is, and each of its keys with its default."""
    lines = []
    for key, field in section.model_fields.items():
        if key not in fixed:
            default = "" if field.is_required() else json.dumps(plain(field.get_default(call_default_factory=True)))
            lines.append(f"    {key}{default and f' = {default}'}: {description(field)}".rstrip(": "))
    return "\n".join([inspect.cleandoc(section.__doc__ or ""), "", "Keys:", *lines, ""])
