"""How much memory may be used: the system's account, and the container's limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed.memory import available_bytes, require_bytes


def test_the_smaller_of_system_and_container_counts(tmp_path: Path) -> None:
    """What a container has left of its limit, where it has one."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    assert available_bytes(tmp_path, meminfo) == 50 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path, meminfo) == 50 * 1024
    (tmp_path / "memory.max").write_text("30000\n")
    (tmp_path / "memory.current").write_text("10000\n")
    assert available_bytes(tmp_path, meminfo) == 20000
    (tmp_path / "memory.current").write_text("40000\n")
    assert available_bytes(tmp_path, meminfo) == 0


def test_without_an_account_all_memory_counts(tmp_path: Path) -> None:
    """Where the system keeps none, its physical memory is the bound."""
    assert available_bytes(tmp_path, tmp_path / "gone") > 1 << 20
    assert available_bytes() > 1 << 20


def test_too_much_is_refused_with_numbers_and_advice() -> None:
    """The message states both sizes."""
    require_bytes(1, "a byte", "take less")
    with pytest.raises(DataError, match=r"a mountain needs about 1024\.0 GiB.*take less"):
        require_bytes(1 << 40, "a mountain", "take less")
