"""Every message class, and messages of any of them drawn from their annotations."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from kernfed.federation.messages.base import FieldInfo, Message, Reply, Request, fields_of
from kernfed.federation.messages.catalogue import message_modules

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def message_classes() -> list[type[Message]]:
    """All concrete message classes, whichever room they are in."""
    found = [
        value
        for module in message_modules()
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and issubclass(value, Message)
    ]
    return [c for c in found if c not in (Message, Reply) and (hasattr(c, "step") or not issubclass(c, Request))]


@st.composite
def messages(draw: st.DrawFn, cls: type[Message]) -> Any:
    """A valid message of a class: symbols of shapes agree, numbers lie in their ranges."""
    return _draw(draw, cls, {})


def _draw(draw: st.DrawFn, cls: type, dims: dict[str, int]) -> Any:
    # Dimensions stated by numbers first: arrays follow them.
    values: dict[str, Any] = {}
    for f in sorted(fields_of(cls), key=lambda f: f.dim is None):
        if f.type is np.ndarray:
            assert f.shape is not None
            shape = tuple(_size(draw, dims, d) if isinstance(d, str) else d for d in f.shape.dims)
            kind, numbers = (np.int64, st.integers(0, 2**40)) if f.whole else (np.float64, FINITE)
            values[f.name] = draw(npst.arrays(kind, shape, elements=numbers))
        elif f.type is tuple:
            count = draw(st.integers(0, min(3, f.max_length.limit if f.max_length else 3)))
            values[f.name] = tuple(_item(draw, f, f.item, dims) for _ in range(count))
        else:
            values[f.name] = _item(draw, f, f.type, dims)
    return cls(**values)


def _item(draw: st.DrawFn, f: FieldInfo, kind: Any, dims: dict[str, int]) -> Any:
    if hasattr(kind, "__dataclass_fields__"):
        return _draw(draw, kind, dims)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return draw(st.sampled_from(list(kind)))
    low, high = (f.range.ge, f.range.le) if f.range else (-np.inf, np.inf)
    if kind is bool:
        return draw(st.booleans())
    if kind is int:
        if f.dim is not None:
            return _size(draw, dims, f.dim.symbol)
        return draw(st.integers(max(0, int(max(low, 0))), int(min(high, 2**53))))
    if kind is float:
        return draw(
            st.floats(
                None if low == -np.inf else low, None if high == np.inf else high, allow_nan=False, allow_infinity=False
            )
        )
    assert kind is str
    return draw(st.text(max_size=20))


def _size(draw: st.DrawFn, dims: dict[str, int], symbol: str) -> int:
    if symbol not in dims:
        dims[symbol] = draw(st.integers(1, 3))
    return dims[symbol]
