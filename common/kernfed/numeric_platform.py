"""What decides the last bits of floating-point results on a machine: where these facts agree, so do the bits."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from kernfed.jobs.info import DEVICE_ON

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class NumericPlatform:
    """The processor, and the libraries that choose their kernels by it."""

    processor: str
    """Vendor and family, e.g. `AuthenticAMD family 25`; the machine's architecture where the system does not tell."""
    blas: str
    """Libraries of linear algebra that are loaded, with the kernel that each chose, e.g. `openblas 0.3.31 Haswell`."""
    numpy: str
    """Release."""
    torch: str
    """Release, and the instructions that it uses where it is loaded, e.g. `2.13.0+cpu AVX512`; empty: not installed."""

    def __str__(self) -> str:
        """In a line."""
        parts = (self.processor, self.blas, f"numpy {self.numpy}", f"torch {self.torch}" if self.torch else "")
        return ", ".join(part for part in parts if part)


def numeric_platform(cpuinfo: Path = _CPUINFO) -> NumericPlatform:
    """The facts of this process; those of torch alone where it is loaded already, for loading it takes a second.

    Args:
        cpuinfo: The system's account of its processors.
    """
    blas = {
        " ".join(str(found[key]) for key in ("internal_api", "version", "architecture") if found.get(key))
        for found in threadpool_info()
        if found["user_api"] == "blas"
    }
    return NumericPlatform(_processor(cpuinfo), ", ".join(sorted(blas)), np.__version__, _torch())


def with_platform(device: str) -> str:
    """Text about a device, followed by this process's platform, as a client reports it."""
    return f"{device}{DEVICE_ON}{numeric_platform()}"


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    if "vendor_id" in facts and "cpu family" in facts:
        return f"{facts['vendor_id']} family {facts['cpu family']}"
    return platform.machine() or "unknown"


def _torch() -> str:
    torch = sys.modules.get("torch")
    if torch is not None:
        return f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}"
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
