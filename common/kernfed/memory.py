"""The memory that this process may take, so that a computation too large for it is refused before it begins.

The least of four accounts: what the system has left, what control groups (version 2 or 1, and those around them) leave
of their limits, and what `ulimit -v` and `ulimit -d` leave of this process's addresses and data.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from kernfed.errors import DataError

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_UNLIMITED = 1 << 60
"""Version 1 writes a number near 2^63 where there is no limit."""


def available_bytes(cgroup: Path = _CGROUP, proc: Path = _PROC) -> int:
    """Memory that this process can take without swapping, and without meeting a limit.

    Args:
        cgroup: Where control groups are mounted.
        proc: Where the system tells of itself and of this process.
    """
    found = [_system_bytes(proc / "meminfo"), *_control_groups(cgroup, proc), *_process_limits(proc)]
    return max(0, min(found))


def require_bytes(needed: int, what: str, advice: str, limit: int | None = None) -> None:
    """Refuse work that does not fit into `limit` bytes; unset: nine tenths of what is available.

    Raises:
        DataError: States the estimate, the limit, and `advice`.
    """
    if limit is None:
        limit = available_bytes() * 9 // 10
    if needed > limit:
        raise DataError(
            f"{what} needs about {needed / 2**30:.1f} GiB, and {limit / 2**30:.1f} GiB may be used here; {advice}"
        )


def _system_bytes(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_groups(mount: Path, proc: Path) -> Iterator[int]:
    """What each control group around this process leaves."""
    unified, memory = _own_groups(proc)
    for folder in _around(mount, unified):
        yield from _left(folder, "memory.max", "memory.current", "inactive_file")
    for folder in _around(mount / "memory", memory):
        yield from _left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _own_groups(proc: Path) -> tuple[str, str]:
    """Paths of this process's groups below the mounts of versions 2 and 1; inside a container, its own root."""
    unified = memory = "/"
    try:
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                unified = path
            elif "memory" in controllers.split(","):
                memory = path
    except (OSError, ValueError):
        pass
    return unified, memory


def _around(mount: Path, group: str) -> list[Path]:
    """The group's folder and those above it, as far as they can be seen from here."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _left(folder: Path, limit: str, usage: str, cache: str) -> Iterator[int]:
    """What a group leaves of its limit; pages of files that it can drop count as free."""
    try:
        most = int((folder / limit).read_text())
        used = int((folder / usage).read_text())
    except (OSError, ValueError):  # no such group, not this version, or "max"
        return
    if most >= _UNLIMITED:
        return
    try:
        facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used -= int(facts.get(cache, 0))
    except (OSError, ValueError):
        pass
    yield most - max(0, used)


def _process_limits(proc: Path) -> Iterator[int]:
    """What is left of this process's own limits, soft ones, on addresses (`ulimit -v`) and data (`ulimit -d`)."""
    for limit, field in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            yield most - _own_kilobytes(proc / "self" / "status", field) * 1024


def _own_kilobytes(status: Path, field: str) -> int:
    try:
        for line in status.read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0
