"""Messages that packages from outside declare cross the wire without a .proto file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, WireError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.wire.codec import decode, encode
from kernfed_testing.machine.installed import on_path, write_package

MESSAGES = '''
from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Dim, Message, Names, Range, Shape, Whole


class Colour(enum.StrEnum):
    RED = "red"
    DARK_BLUE = "dark-blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Message):
    weight: float
    colour: Colour


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything(Message):
    count: Annotated[int, Range(0, 9), Dim("N")]
    shift: int
    name: str
    yes: bool
    names: Names
    numbers: tuple[float, ...]
    colour: Colour
    map: FeatureSpec
    part: Part
    parts: tuple[Part, ...]
    x: Annotated[Array, Shape("N", 2)]
    counts: Annotated[Array, Shape("N"), Whole()]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema(Message):
    """Of a name that the project has too."""

    only: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong(Message):
    anything: dict
'''


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The messages of a package's room."""
    site = tmp_path_factory.mktemp("site")
    modules = {"acme_wire/__init__.py": "", "acme_wire/messages.py": MESSAGES}
    write_package(site, "acme-wire", {"kernfed.methods": {"wire": "acme_wire"}}, modules)
    with on_path(site):
        yield importlib.import_module("acme_wire.messages")


def everything(m: ModuleType, **changes: Any) -> Any:
    """A message with a field of each type."""
    values = {
        "count": 3,
        "shift": -4,
        "name": "nö",
        "yes": True,
        "names": ("a", "b"),
        "numbers": (0.5, -1.0),
        "colour": m.Colour.DARK_BLUE,
        "map": make_spec(Kernel.LAPLACE, FeatureForm.COSINE, 2, 0.5, 8, 1),
        "part": m.Part(weight=0.1, colour=m.Colour.RED),
        "parts": (m.Part(weight=1.0, colour=m.Colour.RED), m.Part(weight=2.0, colour=m.Colour.DARK_BLUE)),
        "x": np.arange(6.0).reshape(3, 2),
        "counts": np.array([1, 2, 3]),
    }
    return m.Everything(**{**values, **changes})


def test_every_type_of_field_comes_back(messages: ModuleType) -> None:
    """Numbers, texts, enums, parts of the package's own and of the project's, arrays, and tuples of these."""
    sent = everything(messages)
    payload = encode(sent)
    found = decode(messages.Everything, payload.header, memoryview(payload.body()))
    for name in ("count", "shift", "name", "yes", "names", "numbers", "colour", "map", "part", "parts"):
        assert getattr(found, name) == getattr(sent, name), name
    np.testing.assert_array_equal(found.x, sent.x)
    np.testing.assert_array_equal(found.counts, sent.counts)


def test_limits_hold_as_for_our_own(messages: ModuleType) -> None:
    """A number out of its range, and a header that is no such message, are refused."""
    payload = encode(everything(messages, count=10, x=np.zeros((10, 2)), counts=np.ones(10, dtype=np.int64)))
    with pytest.raises(WireError, match="count"):
        decode(messages.Everything, payload.header, memoryview(payload.body()))
    with pytest.raises(WireError):
        decode(messages.Everything, b"\xff\xff", memoryview(b""))


def test_a_name_that_the_project_has_too_is_another_message(messages: ModuleType) -> None:
    """Its module tells them apart."""
    payload = encode(messages.DataSchema(only=2.5))
    assert decode(messages.DataSchema, payload.header, memoryview(payload.body())).only == 2.5


def test_a_type_that_cannot_cross_is_told_with_its_package(messages: ModuleType) -> None:
    """The field is named."""
    with pytest.raises(ConfigError, match=r"Wrong\.anything of package acme-wire 1\.0 is of type .*dict"):
        encode(messages.Wrong(anything={}))
