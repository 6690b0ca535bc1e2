"""What a job keeps at a client comes back as it was, or counts as lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kernfed_client.data import kept_arrays

ARRAYS = {"weights": np.linspace(0.5, 1.5, 5), "steps": np.array(3), "none": np.zeros((0, 2))}


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    """Arrays of any shape, with their facts; nothing where nothing was written."""
    path = tmp_path / "folder" / "kept.safetensors"
    assert kept_arrays.read(path) is None
    kept_arrays.write(path, ARRAYS, {"total": 2.5})
    found = kept_arrays.read(path)
    assert found is not None
    assert found[1] == {"total": 2.5}
    assert found[0].keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[0][name], array)


@pytest.mark.parametrize("at", [-1, -17, -40])
def test_a_bit_that_turned_is_found(tmp_path: Path, at: int) -> None:
    """A file that reads well and holds another number counts as lost, as one that was cut does."""
    path = tmp_path / "kept.safetensors"
    kept_arrays.write(path, ARRAYS)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert kept_arrays.read(path) is None
    path.write_bytes(data[:-3])
    assert kept_arrays.read(path) is None


@pytest.mark.parametrize(("number", "good"), [(2.0, True), (1e120, False), (np.nan, False), (-np.inf, False)])
def test_files_of_an_earlier_release(tmp_path: Path, number: float, good: bool) -> None:
    """They have no digest; numbers that cannot be count as lost."""
    path = tmp_path / "kept.safetensors"
    kept_arrays.write(path, ARRAYS)
    save_file({**load_file(path), "weights": np.array([number])}, path, {"facts": "{}"})
    assert (kept_arrays.read(path) is not None) == good
