"""Values of Python as the text of a TOML file, which `tomllib` reads as the same values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kernfed.errors import ConfigError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tables: Mapping[str, Any]) -> str:
    """Text of a file: keys of the top first, then a section for each table, tables in tables behind these.

    Args:
        tables: JSON values by key; None: the key is left out.

    Raises:
        ConfigError: A value is none that a file can hold.
    """
    return "\n".join(_lines(tables, ())).strip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if value is not None and not isinstance(value, Mapping)}
    below = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = ["", f"[{'.'.join(map(_key, path))}]"] if path and (plain or not below) else []
    lines += [f"{_key(key)} = {_value(value, '.'.join((*path, key)))}" for key, value in plain.items()]
    for key, value in below.items():
        lines += _lines(value, (*path, key))
    return lines


def _value(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, where) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)} = {_value(v, where)}' for k, v in value.items() if v is not None)}}}"
    raise ConfigError(f"{where}: a value of type {type(value).__name__} cannot stand in a job file; {value!r:.80}")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
