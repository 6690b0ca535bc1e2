"""The memory that may be used here, so that a computation too large for the machine is refused before it begins."""

from __future__ import annotations

import os
from pathlib import Path

from kernfed.errors import DataError

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def available_bytes(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> int:
    """Memory that can be taken without swapping: what the system has left, or this container's limit leaves.

    Args:
        cgroup: Folder of the control group.
        meminfo: The system's account.
    """
    found = [_system_bytes(meminfo)]
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        if limit.isdigit():
            found.append(int(limit) - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control group, or an older kind
    return max(0, min(found))


def require_bytes(needed: int, what: str, advice: str) -> None:
    """Refuse work that does not fit into nine tenths of what is available.

    Raises:
        DataError: States the estimate, the limit, and `advice`.
    """
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
