"""What decides the bits of floating-point results: two runs with equal facts give the same SHA-256."""

from __future__ import annotations

import platform as system
from pathlib import Path

import numpy as np
import scipy.linalg  # noqa: F401  # it brings a BLAS of its own, which is told of once it is loaded
import torch
from threadpoolctl import threadpool_info


def platform() -> dict[str, str]:
    """The processor, and the libraries that compute with the kernels that they chose for it."""
    libraries = {
        f"{found['internal_api']} {found['version']} {found.get('architecture', '')}"
        for found in threadpool_info()
        if found["user_api"] == "blas"
    }
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    processor = {line.split(":")[1].strip() for line in lines if line.startswith("model name")}
    return {
        "processor": ", ".join(sorted(processor)) or system.machine(),
        "numpy": np.__version__,
        "torch": f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}",
        "libraries": ", ".join(sorted(libraries)),
    }
