"""Writes the tables of the pages beside it from the code: `make docs`; with `--check` it only compares.

A table stands between its marker and `<!-- end -->`; the text around it is written by hand. The markers are:

- `<!-- table: Name -->`: the keys of the section `Name` of a job, client or coordinator file;
- `<!-- table: errors -->`: the errors; the last column is written by hand, and is kept;
- `<!-- methods -->`: all methods, each with the pages whose heading "Settings" links to its keys;
- `<!-- records: personalise -->`: the records of the experiments whose names begin so, from `experiments/records/`;
- `<!-- steps: ridge newton -->`: the steps whose names begin so, and the kinds of information that their replies hold.
"""

from __future__ import annotations

import enum
import json
import math
import re
import sys
from datetime import date
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kernfed.errors import KernfedError
from kernfed.federation.messages.base import Kind, Request
from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.sweeps.section import SweepSection
from kernfed.methods import registry
from kernfed.section import MethodSection, Unused, annotations_in, description, scopes_of
from kernfed_client.steps.registry import STEPS
from kernfed_server.config import CoordinatorFile

DOCS = Path(__file__).resolve().parent
RECORDS = DOCS.parent / "experiments" / "records"
MOST_ROWS = 40
"""Of a record, in a page."""
TABLE = re.compile(
    r"(?P<begin><!-- (?P<kind>table|steps|methods|records)(?:: (?P<of>[\w ]+))? -->\n)"
    r"(?P<body>.*?)(?P<end><!-- end -->)",
    re.DOTALL,
)
SETTINGS = re.compile(r"^## Settings\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


def _sections(file: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """A file's model and all models inside it, by name."""
    found = {file.__name__: file}
    for field in file.model_fields.values():
        for part in annotations_in(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel) and part is not MethodSection:
                found |= _sections(part)
    return found


METHODS: dict[str, type[BaseModel]] = {name: method.settings for name, method in registry.METHODS.items()}
MODELS: dict[str, type[BaseModel]] = {}
for _file in (JobFile, SweepSection, *METHODS.values(), ClientFile, CoordinatorFile):
    MODELS |= _sections(_file)


def main(arguments: list[str]) -> int:
    """Write the tables, or with `--check` say which files are stale; returns the exit code."""
    stale = []
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (fresh := render(text)) != text:
            stale.append(str(path.relative_to(DOCS)))
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    if stale:
        print(f"{'stale, run `make docs`' if '--check' in arguments else 'written'}: {', '.join(stale)}")
    return 1 if stale and "--check" in arguments else 0


def render(text: str) -> str:
    """A page with its tables written anew."""

    def table(match: re.Match[str]) -> str:
        if match["kind"] == "methods":
            body = _methods()
        elif match["kind"] == "steps":
            body = _steps(match["of"].split())
        elif match["kind"] == "records":
            body = _records(match["of"])
        else:
            body = _errors(match["body"]) if match["of"] == "errors" else _model(_model_of(match["of"]))
        return f"{match['begin']}{body}{match['end']}"

    return TABLE.sub(table, text)


def _model_of(name: str) -> type[BaseModel]:
    if name not in MODELS:
        raise SystemExit(f"a page has a table of {name}, which no file has: take its heading out of the page")
    return MODELS[name]


def _model(model: type[BaseModel]) -> str:
    fields = {
        name: field
        for name, field in model.model_fields.items()
        if not any(isinstance(t, type) and issubclass(t, BaseModel) for t in annotations_in(field.annotation))
    }  # tables below have tables of their own
    scoped = any(scopes_of(field.metadata) for field in fields.values())
    lines = [_row("key", "values", "default", *["only with"] * scoped, "meaning"), _row(*["---"] * (4 + scoped))]
    for name, field in fields.items():
        where = [_scope(field)] * scoped
        lines.append(_row(f"`{name}`", _values(field), _default(field), *where, _description(field)))
    if issubclass(model, MethodSection) and model.unused:
        lines += ["", "Refused in a job of this method, for they would do nothing:", ""]
        lines += [f"- `{unused.key}`{_unused_where(unused)}: the method {unused.reason}." for unused in model.unused]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _scope(field: FieldInfo) -> str:
    return "; or ".join(
        ", ".join(f"`{condition}`" for condition in scope.words()) for scope in scopes_of(field.metadata)
    )


def _unused_where(unused: Unused) -> str:
    tasks = f", with `data.task = {' or '.join(json.dumps(task) for task in unused.tasks)}`" if unused.tasks else ""
    return "".join(f", with `{condition}`" for condition in unused.where.words()) + tasks


def pages_of(method: str) -> list[str]:
    """Names of the pages in methods/ that describe a method: those whose settings link to its keys."""
    found = []
    for path in sorted((DOCS / "methods").glob("*.md")):
        settings = SETTINGS.search(path.read_text(encoding="utf-8"))
        if settings and f"](../jobs.md#{method})" in settings[1]:
            found.append(path.name)
    return found


def _methods() -> str:
    lines = ["| method | description | rounds by default | page |", "| --- | --- | --- | --- |"]
    for name, settings in METHODS.items():
        rounds = settings.model_fields["rounds"].default if "rounds" in settings.model_fields else 1
        pages = ", ".join(f"[{page.removesuffix('.md')}]({page})" for page in pages_of(name))
        about = (settings.__doc__ or "").split("\n")[0]
        lines.append(f"| `{name}` | {about} | {rounds or 'until the streams end'} | {pages} |")
    return "\n".join(lines) + "\n"


def requests_of(prefixes: list[str]) -> list[type[Request[Any]]]:
    """Requests whose step's name begins with one of these, in the order of these."""
    return [request for prefix in prefixes for request in STEPS if request.step.split(".")[0] == prefix]


def _steps(prefixes: list[str]) -> str:
    lines = ["| step | request | kinds that leave |", "| --- | --- | --- |"]
    for request in requests_of(prefixes):
        about = " ".join((request.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")
        kinds = ", ".join(f"`{kind}`" for kind in request.kinds) or "none"
        lines.append(f"| `{request.step}` | {about} | {kinds} |")
    return "\n".join(lines) + "\n"


def _records(prefix: str) -> str:
    """Tables of the recorded experiments of a method, a line of what they ran on below each."""
    parts = []
    for path in sorted(RECORDS.glob(f"*{prefix}*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        given = ", ".join(f"{key} {value}" for key, value in record["arguments"].items())
        size = "reduced (`--quick`)" if record["reduced"] else f"at the script's own size; {given}"
        versions = ", ".join(f"{package} {release}" for package, release in record["versions"].items())
        lines = ["| setting | method | published | measured | ± | draws |", "| --- | --- | ---: | ---: | ---: | ---: |"]
        shown = record["rows"][:MOST_ROWS]
        for line in shown:
            numbers = (line["published"], line["measured"], line["standard_error"])
            told = " | ".join("" if number is None else f"{number:g}" for number in numbers)
            lines.append(f"| {line['setting']} | {line['method']} | {told} | {line['draws']} |".replace("|  |", "| |"))
        if more := len(record["rows"]) - len(shown):
            lines.append(f"| and {more} more rows in `experiments/records/{path.name}` | | | | | |")
        took = f"{record['seconds']:.0f} s"
        if "processor_seconds" in record:
            took += f", of the processor {record['processor_seconds']:.0f} s"
        about = f"{size}; {took}; {versions}; {record['platform']}"
        parts.append(f"### {record['name']}\n\n" + "\n".join(lines) + f"\n\n{about}.\n")
    return "\n" + "\n".join(parts) + "\n" if parts else ""


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
    if annotation == tuple[float, float]:
        return "two numbers"
    if origin is dict:
        if tuple[float, float] in annotations_in(args[1]):
            return f"table of text to {_type(args[1])}"
        return "table of text to text" if _type(args[1]) == "text" else "table"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return ", ".join(f"`{json.dumps(member.value)}`" for member in annotation)
    if annotation is Any:
        return "values"
    names = {bool: "`true`, `false`", int: "integer", float: "number", str: "text", Path: "path", date: "date"}
    return names[annotation]


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
    found = description(field)
    return found if found or get_origin(field.annotation) is not Literal else "Chooses this method."


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
