"""The two files of a model: whole, of one model, private where they are a client's, and never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.models.folder import Pair

FORMAT = "kernfed.some-model/1"
ARRAYS = {"mean": np.arange(3.0), "weights": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
PAIRS = {"shared": Pair(), "private": Pair("own.safetensors", "own.json", "run the job again", private=True)}


@pytest.mark.parametrize("kind", PAIRS)
def test_what_is_written_is_read(tmp_path: Path, kind: str) -> None:
    """Facts and arrays come back, the same model gives the same bytes, and a private one is for its user alone."""
    pair = PAIRS[kind]
    for name in ("first", "second"):
        pair.write(tmp_path / name, {"format": FORMAT, "classes": ("nö", "yes")}, ARRAYS, durable=False)
    facts, arrays = pair.read(tmp_path / "first", FORMAT)
    assert facts["classes"] == ["nö", "yes"]
    np.testing.assert_array_equal(arrays["weights"], ARRAYS["weights"])
    for name in (pair.arrays, pair.facts):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
        assert ((tmp_path / "first" / name).stat().st_mode & 0o077 == 0) == pair.private


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([], "names no format"),
        ({"format": 3}, "names no format"),
        ({"format": "kernfed.other/1"}, "want 'kernfed.some-model/1'"),
        ({"format": FORMAT}, "digests differ"),
    ],
)
def test_odd_facts_are_refused(tmp_path: Path, facts: Any, words: str) -> None:
    """Facts that are no object, of no format or another one, or of other arrays, are an error that names the file."""
    pair = PAIRS["private"]
    pair.write(tmp_path, {"format": FORMAT}, ARRAYS, durable=False)
    (tmp_path / pair.facts).write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match=words) as caught:
        pair.read(tmp_path, FORMAT)
    assert str(tmp_path) in str(caught.value)


def test_deep_facts_are_refused(tmp_path: Path) -> None:
    """Facts of a hundred thousand brackets end in the same error as any damage."""
    pair = PAIRS["shared"]
    (tmp_path / pair.facts).write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="is damaged"):
        pair.read_facts(tmp_path)
