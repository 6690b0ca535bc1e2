"""Writes the tables of the pages beside it from the code: `make docs`; with `--check` it only compares.

A table stands between `<!-- table: Name -->` and `<!-- end -->`; what is around it is written by hand. In errors.md the
last column is by hand too, and is kept.
"""

from __future__ import annotations

import enum
import json
import math
import re
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kernfed.errors import KernfedError
from kernfed.federation.messages.base import Kind
from kernfed.jobs import (
    client_file,
    job_file,
)
from kernfed.methods import settings as method_settings
from kernfed.methods.heads import settings as head_settings
from kernfed.methods.online import settings as online_settings
from kernfed.methods.personalise import settings as personalise_settings
from kernfed.methods.reweight import settings as reweight_settings
from kernfed_server import config as coordinator_file

DOCS = Path(__file__).resolve().parent
TABLE = re.compile(r"(<!-- table: (?P<name>\w+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)

MODELS: dict[str, type[BaseModel]] = {
    model.__name__: model
    for module in (
        job_file,
        client_file,
        coordinator_file,
        method_settings,
        head_settings,
        online_settings,
        personalise_settings,
        reweight_settings,
    )
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module.__name__
    if not model.__name__.startswith("_")
    if module is not online_settings or "name" in model.model_fields  # what methods share is in the table of each
}


def main(arguments: list[str]) -> int:
    """Write the tables, or with `--check` say which files are stale; returns the exit code."""
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (fresh := render(text)) != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    if stale:
        print(f"{'stale, run `make docs`' if '--check' in arguments else 'written'}: {', '.join(stale)}")
    return 1 if stale and "--check" in arguments else 0


def render(text: str) -> str:
    """A page with its tables written anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        body = _errors(match["body"]) if name == "errors" else _model(MODELS[name])
        return f"{match[1]}{body}{match[4]}"

    return TABLE.sub(table, text)


def _model(model: type[BaseModel]) -> str:
    lines = ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if any(isinstance(t, type) and issubclass(t, BaseModel) for t in _parts(field.annotation)):
            continue  # has a table of its own
        cells = (f"`{name}`", _values(field), _default(field), _description(field))
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


def _parts(annotation: Any) -> list[Any]:
    """Types inside an annotation, outermost first."""
    return [annotation, *(part for arg in get_args(annotation) for part in _parts(arg))]


def _values(field: FieldInfo) -> str:
    return _type(field.annotation) + _limits(field.metadata)


def _type(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        metadata = [m for a in args[1:] for m in (a.metadata if isinstance(a, FieldInfo) else [a])]
        return _type(args[0]) + _limits(metadata)
    if origin in (Union, UnionType):
        return " or ".join(_type(a) for a in args if a is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(a)}`" for a in args)
    if origin is list:
        return f"list of {_type(args[0])}"
    if origin is dict:
        return "table of text to text" if _type(args[1]) == "text" else "table"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return ", ".join(f"`{json.dumps(member.value)}`" for member in annotation)
    return {bool: "`true`, `false`", int: "integer", float: "number", str: "text", Path: "path"}[annotation]


def _limits(metadata: list[Any]) -> str:
    found = []
    for name, sign in (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤")):
        found += [f"{sign} {_number(getattr(m, name))}" for m in metadata if getattr(m, name, None) is not None]
    return " " + ", ".join(found) if found else ""


def _number(value: float) -> str:
    if value >= 2**20 and math.log2(value).is_integer():
        return f"2^{math.log2(value):.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "unset"
    if isinstance(value, list) and value and all(isinstance(v, Kind) for v in value):
        left_out = ", ".join(f"`{k}`" for k in Kind if k not in value)
        return f"all but {left_out}" if left_out else "all"
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"`{value}`" if value < 2**20 else f"{value} ({_number(value)})"
    return f"`{json.dumps(value)}`"


def _description(field: FieldInfo) -> str:
    inner = (m for part in _parts(field.annotation) for m in get_args(part)[1:])
    found = field.description or next((m.description for m in inner if getattr(m, "description", None)), "")
    if not found and get_origin(field.annotation) is Literal:
        found = "Chooses this method."
    return " ".join(found.split())


def error_classes(root: type[KernfedError] = KernfedError) -> list[type[KernfedError]]:
    """All errors of `kernfed.errors`, families before their leaves."""
    subclasses = [sub for sub in root.__subclasses__() if sub.__module__ == root.__module__]
    return [root, *(found for sub in subclasses for found in error_classes(sub))]


def _errors(body: str) -> str:
    rows = (re.split(r"(?<!\\)\|", line) for line in body.splitlines())
    remedies = {row[1].strip(" `"): row[4].strip() for row in rows if len(row) == 6}
    lines = ["| reason | exit code | meaning | remedy |", "| --- | ---: | --- | --- |"]
    for cls in error_classes():
        meaning = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        if cls is KernfedError:
            meaning = "Something unexpected; the full trace is in the log of the process that failed, and only there."
        lines.append(f"| `{cls.reason}` | {cls.exit_code} | {meaning} | {remedies.get(cls.reason, '')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
