"""The device on which a client computes."""

from __future__ import annotations

import torch

from kernfed.errors import ConfigError
from kernfed.memory import available_bytes


def choose_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into a device; `auto` is CUDA where there is one.

    Raises:
        ConfigError: CUDA is asked for and there is none, or not that many.
    """
    if name == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    if int(name.partition(":")[2] or 0) >= count:  # torch.device keeps 8 bits of the index
        raise ConfigError(
            f"device {name!r} is not there: PyTorch {torch.__version__} finds {count} CUDA devices; "
            'set device = "auto" in the client file, or install a driver and a CUDA build of PyTorch'
        )
    return torch.device(name)


def usable_bytes(limit: int | None, device: torch.device) -> int:
    """Bytes that a computation may take: the client file's limit, else most of what is free on the device."""
    if limit is not None:
        return limit
    free = int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else available_bytes()
    return free * 9 // 10
