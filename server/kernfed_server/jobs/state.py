"""State of a workflow in a checkpoint: named arrays, and how names and JSON values are kept in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernfed.arrays import Array

Arrays = Mapping[str, Array]
"""A state as it is written: arrays by name."""


class State(Mapping[str, Array]):
    """A state as a resumed run reads it."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        """The array of a name."""
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Number of arrays."""
        return len(self._arrays)

    def number(self, name: str) -> float:
        """A single number."""
        return float(self[name][0])

    def flag(self, name: str) -> bool:
        """A single yes or no."""
        return bool(self[name][0])

    def names(self, name: str) -> tuple[str, ...]:
        """The texts that `names_array` was given; of one empty text it gives two."""
        array = self[name]
        return tuple(array.tobytes().decode().split("\n")) if array.size else ()

    def json(self, name: str) -> Any:
        """The value that `json_array` was given."""
        return json_of(self[name])

    def part(self, prefix: str) -> State:
        """The arrays whose names begin so, without that beginning."""
        return State({name.removeprefix(prefix): a for name, a in self.items() if name.startswith(prefix)})


def names_array(names: Sequence[str]) -> Array:
    """Texts without line breaks as an array; `State.names` reads it."""
    text = "\n".join(names) or "\n" * bool(names)
    return np.frombuffer(text.encode(), dtype=np.uint8)


def json_array(value: Any) -> Array:
    """A JSON value as an array; `State.json` reads it."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def json_of(array: Array) -> Any:
    """The value that `json_array` was given."""
    return json.loads(array.tobytes())
