"""A test of the lines between coordinator and clients: numbers go out and come back."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.errors import JobError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.methods.probe.messages import EchoRequest
from kernfed.methods.probe.settings import ProbeSettings
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import Workflow

_PERIOD = 100_003
"""Numbers before they repeat; a prime, so that no fragment or slice is like another."""

_SLICE = 1 << 17


async def run(setup: Setup | None, settings: ProbeSettings, cohort: Cohort, run: Run) -> Array | None:
    """Send `payload_bytes` to every client and take their mean back, which must be what was sent.

    What leaves a client: the coordinator's own numbers. The coordinator learns how fast the lines are.

    Raises:
        JobError: The mean is not what was sent.
    """
    del setup  # no data are touched
    sent = await asyncio.to_thread(_numbers, max(1, settings.payload_bytes // 8))
    bytes_each_way = sent.size * (8 if cohort.float_epsilon < 1e-12 else 4)
    async for round_num in run.rounds(settings.rounds):
        start = time.monotonic()
        echo = await cohort.mean(EchoRequest(values=sent))
        seconds = time.monotonic() - start
        if not await asyncio.to_thread(_same, echo.values, sent):
            raise JobError(
                f"round {round_num}: the mean of what came back is not what was sent; a line or a peer is broken"
            )
        megabytes = 2 * bytes_each_way * echo.num_rows / 1e6
        told = f"every number came back as it was sent, in each of {settings.rounds} rounds"
        run.ends(Arrival(told if settings.rounds > 1 else "every number came back as it was sent"))
        training = {"seconds": seconds, "megabytes_per_second": megabytes / max(seconds, 1e-9)}
        await run.record(round_num, {}, RoundMetrics(training=training))
    return None


def _numbers(size: int) -> Array:
    """Eighths in [0, 64), shape (size,): exact in float32 too."""
    return np.resize(rng.stream(0, "probe").integers(512, min(size, _PERIOD)) / 8.0, size)


def _same(mean: Array, sent: Array) -> bool:
    """Whether a mean is what was sent, up to the rounding of its weights; slice by slice, for both may be large."""
    slices = (slice(i, i + _SLICE) for i in range(0, sent.size, _SLICE))
    return all(np.allclose(mean[s], sent[s], rtol=1e-12, atol=0.0) for s in slices)


WORKFLOWS = {"probe": Workflow(run)}
