"""A test of the lines between coordinator and clients: numbers go out and come back."""

from __future__ import annotations

import time

import numpy as np

from kernfed import rng
from kernfed.cohort import Cohort
from kernfed.errors import JobError
from kernfed.events import RoundMetrics
from kernfed.messages.base import Array
from kernfed.messages.probe import EchoRequest
from kernfed.method_settings import ProbeSettings
from kernfed_server.preparation import Setup
from kernfed_server.run import Run


async def run(setup: Setup | None, settings: ProbeSettings, cohort: Cohort, run: Run) -> Array | None:
    """Send `payload_bytes` to every client and take their mean back, which must be what was sent.

    What leaves a client: the coordinator's own numbers. The coordinator learns how fast the lines are.

    Raises:
        JobError: The mean is not what was sent.
    """
    del setup  # no data are touched
    # Eighths in [0, 64): exact in float32 too, and so is their mean, up to the rounding of the weights' sum.
    sent = rng.stream(0, "probe").integers(512, max(1, settings.payload_bytes // 8)) / 8.0
    async for round_num in run.rounds(settings.rounds):
        start = time.monotonic()
        echo = await cohort.mean(EchoRequest(values=sent))
        seconds = time.monotonic() - start
        if not np.allclose(echo.values, sent, rtol=1e-12, atol=0.0):
            raise JobError(
                f"round {round_num}: the mean of what came back is not what was sent; a line or a peer is broken"
            )
        megabytes = 2 * sent.nbytes * echo.num_rows / 1e6
        training = {"seconds": seconds, "megabytes_per_second": megabytes / max(seconds, 1e-9)}
        await run.record(round_num, {}, RoundMetrics(training=training))
    return None
