"""A job under way in a federation of containers: what it does next, and what it leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobInfo
from kernfed.wire.operator_client import OperatorClient
from kernfed_testing.limits import LIMIT_S


class Running:
    """A job under way."""

    def __init__(self, operator: OperatorClient, job_id: str, num_rounds: int) -> None:
        """Follow a job."""
        self.operator = operator
        self.job_id = job_id
        self.num_rounds = num_rounds

    async def event(self, wanted: Callable[[JobEvent], bool], what: str) -> JobEvent:
        """Wait for an event, past or to come."""
        async with asyncio.timeout(LIMIT_S):
            async with contextlib.aclosing(self.operator.watch(self.job_id)) as updates:
                async for update in updates:
                    if update.event is not None and wanted(update.event.event):
                        return update.event.event
        info = await self.operator.get(self.job_id)
        raise AssertionError(f"the job ended {info.state} ({info.error_message}) without {what}")

    async def round_closed(self, round_num: int) -> JobEvent:
        """Wait until a round, or one behind it, closes."""
        return await self.event(
            lambda e: e.kind is EventKind.ROUND_CLOSED and e.round_num >= round_num, f"closing round {round_num}"
        )

    async def goes_on(self) -> None:
        """Wait until some rounds more than now have closed."""
        await self.round_closed(min((await self.info()).round_num + 20, self.num_rounds))

    async def info(self) -> JobInfo:
        """The job now."""
        return await self.operator.get(self.job_id)

    async def is_in_mid_job(self) -> None:
        """Fail unless rounds are still to come: a fault behind the last round would test nothing."""
        info = await self.info()
        assert info.state is JobState.RUNNING, info
        assert info.round_num < self.num_rounds - 1

    async def model_sha256(self) -> str:
        """Wait for the job's end; SHA-256 of the model that it left."""
        async with asyncio.timeout(2 * LIMIT_S):
            async with contextlib.aclosing(self.operator.watch(self.job_id)) as updates:
                async for _ in updates:
                    pass
        info = await self.info()
        assert info.state is JobState.SUCCEEDED, f"{info.error_reason}: {info.error_message}"
        left = {artifact.name: artifact.sha256 for artifact in await self.operator.artifacts(self.job_id)}
        return left["model.safetensors"]
