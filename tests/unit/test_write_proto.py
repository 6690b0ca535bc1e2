"""The .proto files of messages follow the dataclasses, and what is on the wire already never moves."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated

import pytest

from kernfed.federation.messages.base import Range, Reply, Rows
from kernfed.methods.ridge import messages
from kernfed_testing.places import ROOT


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The tool that writes the files, as a module."""
    spec = importlib.util.spec_from_file_location("write_proto", ROOT / "tools/write_proto.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Curvature(Reply):
    """Curvature as a later version might send it."""

    steps: Annotated[int, Range(1, 2**53)]
    """Power iterations."""
    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold(Reply):
    """A message with a field that nothing explains."""

    number: int


def test_files_say_what_the_dataclasses_say(tool: ModuleType) -> None:
    """No file differs from what would be written, and each room with messages has one."""
    texts = tool.files(tool.contract())
    rooms = {path.parent.name for path in (ROOT / "common/kernfed/methods").glob("*/*messages.py")}
    assert {"data", "evaluation"} | rooms <= texts.keys()
    for name, text in texts.items():
        assert (ROOT / f"proto/kernfed/v1/{name}.proto").read_text() == text, name


def test_a_field_keeps_its_number(tool: ModuleType) -> None:
    """A new field gets the next number wherever it stands; one that went is reserved, with its name."""
    text = tool.message(Curvature, tool.contract())
    assert "uint64 num_rows = 1;" in text
    assert "// Power iterations. From 1 to 2^53.\n  uint64 steps = 3;" in text
    assert "reserved 2;" in text
    assert 'reserved "largest_eigenvalue";' in text


def test_a_field_says_what_it_is(tool: ModuleType) -> None:
    """The text comes from below the field or below its type's name; with neither, nothing is written."""
    ridge = tool.message(messages.LocalSolveRequest, tool.contract())
    assert "// Features M. From 1 to 10,000,000. Binds M." in ridge
    with pytest.raises(SystemExit, match=r"Untold\.number has no text below it"):
        tool.message(Untold, tool.contract())
