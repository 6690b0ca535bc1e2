"""Writes `common/kernfed/python/sections.pyi`, which shows type checkers the classes of `kernfed.python.sections`.

`make docs` runs it; with `--check` it only compares.
"""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kernfed.python.section_classes import classes
from kernfed.section import MethodSection

STUB = Path(__file__).resolve().parents[1] / "common/kernfed/python/sections.pyi"
HEAD = '''"""Written by `make docs`: the classes of a job's tables, as type checkers and editors see them."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from kernfed.jobs.job_sections import CohortSection, DataSection, FeaturesSection, PrivacySection
from kernfed.section import MethodSection
'''


def stub() -> str:
    """The text of the stub."""
    own = {name: cls for name, cls in classes().items() if cls.__mro__[1].__module__.startswith("kernfed.")}
    listed = "".join(f'    "{name}",\n' for name in sorted(own))
    parts = [HEAD, f"__all__ = [\n{listed}]\n"]
    parts += [_class(name, cls) for name, cls in sorted(own.items())]
    return "\n".join(parts)


def _class(name: str, cls: type[BaseModel]) -> str:
    method = issubclass(cls, MethodSection)
    base = "MethodSection" if method else cls.__mro__[1].__name__
    keys = [(key, field) for key, field in cls.model_fields.items() if not (method and key == "name")]
    lines = [f"class {name}({base}):", f'    """{(cls.__doc__ or "").splitlines()[0]}"""', ""]
    lines += ["    def __init__(", "        self,", "        *,"] if keys else ["    def __init__(self) -> None: ..."]
    lines += [f"        {key}: {_type(field.annotation)}{_default(field)}," for key, field in keys]
    lines += ["    ) -> None: ..."] if keys else []
    lines += ["    def __getattr__(self, name: str) -> Any: ..."] if method else []
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    return "" if field.is_required() else " = ..."


def _type(annotation: Any) -> str:
    """What may be given for a key, by its type in the job file."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(_type(arg) for arg in args))
    if origin is Literal:
        return f"Literal[{', '.join(json.dumps(arg) for arg in args)}]"
    if origin in (list, tuple):
        inner = dict.fromkeys(_type(arg) for arg in args if arg is not Ellipsis)
        return f"Sequence[{' | '.join(inner)}]"
    if origin is dict:
        return f"Mapping[{_type(args[0])}, {_type(args[1])}]"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return f"Literal[{', '.join(json.dumps(member.value) for member in annotation)}]"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "Mapping[str, Any]"
    names = {bool: "bool", int: "int", float: "float", str: "str", NoneType: "None", Path: "str | PathLike[str]"}
    return names.get(annotation, "Any")


def main(arguments: list[str]) -> int:
    """Write the stub, or with `--check` say whether it is stale; returns the exit code."""
    text = stub()
    if STUB.exists() and STUB.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        print(f"{STUB.name} is stale: run `make docs`")
        return 1
    STUB.write_text(text, encoding="utf-8")
    print(f"written: {STUB.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
