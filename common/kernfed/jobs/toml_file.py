"""TOML files into pydantic models: unknown keys, wrong types and impossible values name file, key and remedy."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from kernfed import plugins
from kernfed.errors import ConfigError
from kernfed.section import ACCEPTED, KindOf
from kernfed.wording import listed

M = TypeVar("M", bound=BaseModel)

MAX_KEY_PARTS: Final = 16
"""Parts of a dotted key; the parser's time and memory grow with the square of them."""
MAX_PROBLEMS: Final = 20

_PART: Final = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY: Final = re.compile(rf"""(?<![\w"'-]){_PART}(?:\.[ \t]*+{_PART}){{{MAX_KEY_PARTS}}}""")


def read_toml(path: Path, remedy: str = "check the path") -> str:
    """Text of a TOML file.

    Args:
        path: Where it lies.
        remedy: What to do where it is missing.

    Raises:
        ConfigError: The file is missing, unreadable or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {remedy}") from None
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read ({err.strerror or err}); check the path and its rights") from err
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path}: not UTF-8 text ({err}); save it as UTF-8") from err


def parse_toml(model: type[M], text: str, source: str, *, accepted: bool = False) -> M:
    """Parse and validate.

    Args:
        model: What the file must look like.
        text: Its content.
        source: Its name, for messages.
        accepted: Whether the file was accepted before: a key without effect is then ignored, as it was, not refused.

    Raises:
        ConfigError: Names `source`, the key and what to do about it, one line per problem.
    """
    return validated(model, tables_of(text, source), source, accepted=accepted)


def validated(
    model: type[M], data: dict[str, Any], source: str, *, accepted: bool = False, whole: type[BaseModel] | None = None
) -> M:
    """Tables as their model; arguments and errors are those of `parse_toml`.

    `whole` is the model of the file of which these tables are a part, so that a key of another table is told as such.
    """
    try:
        return model.model_validate(data, context={ACCEPTED: accepted})
    except ValidationError as err:
        raise ConfigError(_describe(whole or model, data, err, source)) from err


def tables_of(text: str, source: str) -> dict[str, Any]:
    """Tables of a TOML file, of which nothing is validated.

    Raises:
        ConfigError: It is none, or too deep; names `source` and the line.
    """
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise ConfigError(
            f"{source}: line {line}: a key of more than {MAX_KEY_PARTS} parts, {long[0][:40]}…; no key has so many"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(f"{source}: not valid TOML: {err}") from err
    except RecursionError as err:
        raise ConfigError(f"{source}: arrays or tables lie too deep in each other; none of kernfed's do") from err


def _describe(model: type[BaseModel], data: dict[str, Any], err: ValidationError, source: str) -> str:
    lines = []
    problems = err.errors(include_url=False)
    for problem in problems[:MAX_PROBLEMS]:
        loc = [str(part) for part in problem["loc"]]
        table, last = (problem["loc"][:-1], loc[-1:]) if problem["type"] == "missing" else (problem["loc"], [])
        key = ".".join([*_path(data, table), *last]) or "(file)"
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = _unknown_key(model, data, loc)
        elif problem["type"] == "union_tag_invalid":
            told = problem["ctx"]
            text = f"{told['discriminator']} is {told['tag']!r:.80}, not known here; known are {told['expected_tags']}"
            if loc == ["method"]:
                text += f"; {plugins.told()}. Correct the name, or install the package that brings it"
        elif problem["type"] == "missing":
            text = "missing; add it"
        elif problem["type"] not in ("value_error", "union_tag_not_found"):
            text = f"{text}, got {problem.get('input')!r:.80}"
        lines.append(f"{source}: {key[:200]}: {text}")
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"{source}: and {len(problems) - MAX_PROBLEMS} more problems")
    return "\n".join(lines)


def _path(data: Any, loc: Sequence[str | int]) -> Iterator[str]:
    """Where in the file a problem is: without the value, such as a method's name, that chose a table's kind."""
    for part in loc:
        if isinstance(data, dict) and part not in data and part in data.values():
            continue
        yield str(part)
        known = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
        data = data[part] if part in known else None


def _unknown_key(model: type[BaseModel], data: Mapping[str, Any], loc: list[str]) -> str:
    """What to do about a key: where it belongs, or which kinds of its table have it, or the nearest known key."""
    here, wrong = (loc[0] if len(loc) > 1 else ""), loc[-1]
    of = _kind_of(model.model_fields[here]) if here in model.model_fields else None
    kinds = {} if of is None else of.kinds()
    own = "" if of is None else str(data[here][of.key])
    if len(loc) == 2 and (others := [kind for kind, inner in kinds.items() if wrong in inner.model_fields]):
        return f"{own} has no such key; it is one of {listed(others)}; remove it"
    known: dict[str, set[str]] = {}
    _collect(model, "", known, set(kinds.values()) - {kinds.get(own)})
    return f"unknown key{_suggestion(known, here, wrong)}"


def _kind_of(field: FieldInfo) -> KindOf | None:
    return next((mark for mark in field.metadata if isinstance(mark, KindOf)), None)


def _suggestion(known: dict[str, set[str]], here: str, wrong: str) -> str:
    """The nearest known key; for a key that stands in the wrong table, where it belongs."""
    elsewhere = sorted(known.get(wrong, set()) - {here})
    if elsewhere:
        tables = " or ".join(f"[{table}]" if table else "the top of the file" for table in elsewhere)
        return f" here; it belongs in {tables}"
    close = difflib.get_close_matches(wrong[:200], known, n=1)
    return f"; did you mean {close[0]!r}?" if close else "; remove it"


def _collect(model: type[BaseModel], table: str, known: dict[str, set[str]], without: set[Any]) -> None:
    """Every key of a model and of the tables below it, each with the first-level tables that it may stand in."""
    for name, field in model.model_fields.items():
        known.setdefault(name, set()).add(table)
        of = _kind_of(field)
        for kind in () if of is None else of.kinds().values():
            if kind not in without:
                _collect(kind, table or name, known, without)
        for arg in (field.annotation, *getattr(field.annotation, "__args__", ())):
            for inner in (arg, *getattr(arg, "__args__", ())):
                if isinstance(inner, type) and issubclass(inner, BaseModel) and inner not in without:
                    _collect(inner, table or name, known, without)
