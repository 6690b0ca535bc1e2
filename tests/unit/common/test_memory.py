"""How much memory may be used: the system's account, control groups, and the process's own limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernfed.errors import DataError
from kernfed.memory import available_bytes, require_bytes


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of control groups and of the system's accounts, of a machine with 50 kB left."""
    cgroup, proc = tmp_path / "cgroup", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir()
    (proc / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    return cgroup, proc


def limit(folder: Path, most: int | str, used: int, cache: int = 0, *, old: bool = False) -> None:
    """Make a control group's files."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
    for name, value in zip(names, (most, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 7\n{'total_' if old else ''}inactive_file {cache}\n")


def test_the_smaller_of_system_and_container_counts(machine: tuple[Path, Path]) -> None:
    """What a container has left of its limit, where it has one."""
    cgroup, proc = machine
    assert available_bytes(cgroup, proc) == 50 * 1024
    limit(cgroup, "max", 0)
    assert available_bytes(cgroup, proc) == 50 * 1024
    limit(cgroup, 30000, 10000)
    assert available_bytes(cgroup, proc) == 20000
    limit(cgroup, 30000, 10000, cache=4000)
    assert available_bytes(cgroup, proc) == 24000, "pages of files can be dropped"
    limit(cgroup, 30000, 40000)
    assert available_bytes(cgroup, proc) == 0


def test_limits_around_the_own_group_count(machine: tuple[Path, Path]) -> None:
    """A service's own group may have no limit, and the slice that it is in has one."""
    cgroup, proc = machine
    (proc / "self" / "cgroup").write_text("0::/system.slice/kernfed.service\n")
    limit(cgroup / "system.slice" / "kernfed.service", "max", 1)
    assert available_bytes(cgroup, proc) == 50 * 1024
    limit(cgroup / "system.slice", 12000, 2000)
    assert available_bytes(cgroup, proc) == 10000
    limit(cgroup / "system.slice" / "kernfed.service", 5000, 1000)
    assert available_bytes(cgroup, proc) == 4000


def test_control_groups_of_version_1_count(machine: tuple[Path, Path]) -> None:
    """The memory controller has a mount of its own there, and a huge number where there is no limit."""
    cgroup, proc = machine
    (proc / "self" / "cgroup").write_text("12:cpu,cpuacct:/jobs/7\n5:memory:/jobs/7\n1:name=systemd:/x\n")
    limit(cgroup / "memory", 9223372036854771712, 5, old=True)
    assert available_bytes(cgroup, proc) == 50 * 1024
    limit(cgroup / "memory" / "jobs" / "7", 8000, 3000, cache=1000, old=True)
    assert available_bytes(cgroup, proc) == 6000
    (proc / "self" / "cgroup").write_text("5:memory:/docker/0123/not-seen-from-inside\n")
    limit(cgroup / "memory", 7000, 3000, old=True)
    assert available_bytes(cgroup, proc) == 4000, "inside a container its own root is what there is"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_limits_of_this_process_count(name: str) -> None:
    """A process under `ulimit -v` or `-d` sees what it can still take, and taking more does fail."""
    program = f"""
import resource, numpy
from kernfed.memory import available_bytes
free = available_bytes()
most = 2 << 30
resource.setrlimit(resource.{name}, (most, most))
found = available_bytes()
assert found < min(free, most), (found, free)
try:
    numpy.empty(found // 8 + (1 << 22))
except MemoryError:
    print("refused")
numpy.empty(found // 16)
print(found > 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"OMP_NUM_THREADS": "1"}
    )
    assert done.stdout.split() == ["refused", "True"], done.stderr


def test_without_an_account_all_memory_counts(tmp_path: Path) -> None:
    """Where the system keeps none, its physical memory is the bound."""
    assert available_bytes(tmp_path, tmp_path / "gone") > 1 << 20
    assert available_bytes() > 1 << 20


def test_too_much_is_refused_with_numbers_and_advice() -> None:
    """The message states both sizes."""
    require_bytes(1, "a byte", "take less")
    with pytest.raises(DataError, match=r"a mountain needs about 1024\.0 GiB.*take less"):
        require_bytes(1 << 40, "a mountain", "take less")
