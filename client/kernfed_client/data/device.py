"""The device on which a client computes, and the memory that a job may take of it."""

from __future__ import annotations

import torch

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import ClientFile
from kernfed.memory import available_bytes, require_bytes
from kernfed.tensors.rows import SMALL


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


class Machine:
    """What the client file lets a job take of the machine."""

    def __init__(self, file: ClientFile) -> None:
        """Begin with nothing taken; the device is chosen when it is first asked for."""
        self.file = file
        self._device: torch.device | None = None

    @property
    def device(self) -> torch.device:
        """Device on which this client computes, as its file says.

        Raises:
            ConfigError: The file asks for CUDA, and there is none.
        """
        if self._device is None:
            self._device = choose_device(self.file.device)
        return self._device

    def usable_bytes(self) -> int:
        """Bytes that this job's matrices may take: the client file's limit, else most of what is free on the device."""
        if self.file.max_memory_bytes is not None:
            return self.file.max_memory_bytes
        cuda = self.device.type == "cuda"
        free = int(torch.cuda.mem_get_info(self.device)[0]) if cuda else available_bytes()
        return free * 9 // 10

    def require(self, num_numbers: int, what: str) -> None:
        """Refuse what a request asks for before it takes memory.

        Args:
            num_numbers: Numbers of 8 bytes that exist at once.
            what: What they are, for the text.

        Raises:
            DataError: They do not fit; states the estimate, the limit and the remedy.
        """
        if num_numbers > SMALL:
            advice = "lower the numbers of features in the job, raise max_memory_bytes of the client file, or use a "
            require_bytes(8 * num_numbers, what, f"{advice}machine with more memory", self.usable_bytes())
