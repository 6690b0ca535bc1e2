"""What a daemon computes with: torch, the device, jobs and the table of all steps; loaded once, by the worker."""

from __future__ import annotations

import torch

from kernfed.jobs.client_file import ClientFile
from kernfed.numeric_platform import with_platform
from kernfed.tensors import threads
from kernfed_client.data.device import choose_device
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS

__all__ = ["STEPS", "LocalJob", "prepare"]


def prepare(file: ClientFile) -> tuple[str, str]:
    """Limit the threads of the maths libraries and choose the device.

    Returns:
        What we compute on, and why not on something better.

    Raises:
        ConfigError: The file asks for a device that is not there.
    """
    if file.threads is not None:
        threads.allow(file.threads)
    device = choose_device(file.device)
    if device.type == "cuda":
        return with_platform(f"{device} ({torch.cuda.get_device_name(device)})"), ""
    note = "" if file.device == "cpu" else f"no CUDA device: PyTorch {torch.__version__} finds none"
    return with_platform(f"cpu ({torch.get_num_threads()} threads)"), note
