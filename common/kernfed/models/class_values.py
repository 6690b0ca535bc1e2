"""Classes in the type that a person's target has: a model's files name them by text, a table holds 0 and 1."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernfed.errors import ConfigError, DataError
from kernfed.tables.cells import label_text, read_label
from kernfed.wording import listed

OWN = "own"
TEXT = "text"

_TRUTH = {"true": True, "false": False}


def class_values(classes: Sequence[str], labels: str | Sequence[Any] = OWN) -> npt.NDArray[Any]:
    """Values of classes, in the order of their names.

    Args:
        classes: Their names, as a model has them.
        labels: `own`: integers, numbers or booleans where all names are such, as a table with these values is read,
            else text. `text`: text. Or the values themselves, one a class, in whatever order.

    Raises:
        ConfigError: `labels` is none of these.
    """
    if isinstance(labels, str):
        if labels not in (OWN, TEXT):
            raise ConfigError(f"labels is {labels!r:.80}; give {OWN!r}, {TEXT!r}, or a value for each class")
        return _read(classes) if labels == OWN else np.array(classes)
    by_name = {read_label(_plain(value), ()): value for value in labels}
    if len(labels) != len(classes) or any(name not in by_name for name in map(_bare, classes)):
        raise ConfigError(
            f"labels has {len(labels)} values ({listed([str(value) for value in labels])}); give one for each of the "
            f"model's classes {', '.join(classes)}"
        )
    return np.array([by_name[_bare(name)] for name in classes])


def class_codes(values: npt.ArrayLike, classes: Sequence[str]) -> npt.NDArray[np.intp]:
    """Index of each value's class, (n,); -1 where it is none. The text of a number is the number.

    Raises:
        DataError: No value is one of the classes, or they are not one column.
    """
    given = np.asarray(values)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise DataError(f"the target has shape {given.shape}, want one value for each row")
    index = {_bare(name): i for i, name in enumerate(classes)}
    read = functools.cache(lambda value: index.get(read_label(value, ()), -1))
    found = np.array([read(value) for value in given.tolist()], dtype=np.intp)
    if len(found) and not (found >= 0).any():
        raise DataError(
            f"no value of the target is one of the model's classes {', '.join(classes)}; give the column as the "
            "job had it"
        )
    return found


def _read(classes: Sequence[str]) -> npt.NDArray[Any]:
    if all(name.lower() in _TRUTH for name in classes):
        return np.array([_TRUTH[name.lower()] for name in classes])
    readers: tuple[Callable[[str], Any], ...] = (int, float)
    for reader in readers:
        try:
            values = np.array([reader(name) for name in classes])
        except (ValueError, OverflowError):
            continue
        if values.dtype.kind in "if" and [label_text(value) for value in values.tolist()] == list(classes):
            return values
    return np.array(classes)


def _bare(name: str) -> str | None:
    return read_label(name, ())


def _plain(value: Any) -> Any:
    """A value of numpy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
