"""Operators who sign what is not theirs, cancel at the same time, and list more than a message holds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kernfed.errors import JobError, SubmissionError
from kernfed.federation.events import JobState
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity, Role, channel_credentials
from kernfed.pki.submission import sign_job
from kernfed.status import error_from_rpc
from kernfed.v1 import operator_service_pb2 as pb
from kernfed.v1 import operator_service_pb2_grpc, task_pb2
from kernfed_testing.worlds.job_world import probe_toml
from kernfed_testing.worlds.operator_service import serving

pytestmark = pytest.mark.redteam


async def test_late_signatures_that_are_not_the_operators(tmp_path: Path) -> None:
    """Another job's, text's, or operator's, for a new job, cut, huge or none: refused; the true one counts, once."""
    async with serving(tmp_path, "a") as service:
        ann = Identity.load(service.operator)
        bob = Identity.load(service.identities.make(Role.OPERATOR, "bob"))
        job = await service.world.submit("demo", ["a"])
        other = await service.world.submit("other", ["a"])
        text = probe_toml("demo", ["a"])

        def made(text: str = text, of: Identity = ann, job_id: str = job.job_id) -> task_pb2.Submission:
            return sign_job(text, of, utc_now(), job_id)

        def changed(**fields: Any) -> task_pb2.Submission:
            found = made()
            for name, change in fields.items():
                setattr(found, name, change(getattr(found, name)))
            return found

        cut: Callable[[bytes], bytes] = lambda value: value[:-3]  # noqa: E731  # of several fields
        wrong = (
            made(job_id=""),
            made(job_id=other.job_id),
            made(text + "#"),
            made(of=bob),
            task_pb2.Submission(),
            changed(statement=cut),
            changed(signature=cut),
            changed(certificate_pem=cut),
            changed(certificate_pem=lambda _: bob.certificate_pem),
            changed(statement=lambda value: value * 1000),
            changed(certificate_pem=lambda value: value * 1000),
        )
        async with grpc.aio.secure_channel(service.address, channel_credentials(ann)) as channel:
            stub: Any = operator_service_pb2_grpc.OperatorServiceStub(channel)

            async def sign(submission: task_pb2.Submission) -> None:
                try:
                    await stub.SignJob(pb.SignJobRequest(job_id=job.job_id, submission=submission))
                except grpc.aio.AioRpcError as err:
                    raise error_from_rpc(err) from None

            for submission in wrong:
                with pytest.raises(SubmissionError):
                    await sign(submission)
            assert await service.world.store.submission(job.job_id) is None
            async with service.dial(bob.folder) as impostor:
                with pytest.raises(JobError, match="of operator ann, who alone can sign it"):
                    await impostor.sign(job)
            true = made()
            await sign(true)
            with pytest.raises(JobError, match="is signed already"):
                await sign(made())
            assert await service.world.store.submission(job.job_id) == true


async def test_two_operators_cancel_and_sign_at_the_same_time(tmp_path: Path) -> None:
    """The job is cancelled, each call ends with a word, and the next signature says that it is over."""
    async with contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(serving(tmp_path, "a"))
        ann = await stack.enter_async_context(service.dial())
        bob = await stack.enter_async_context(service.dial(service.identities.make(Role.OPERATOR, "bob")))
        for number in range(3):
            job = await service.world.submit(f"demo-{number}", ["a"])
            ended = await asyncio.gather(
                ann.sign(job), bob.cancel(job.job_id), ann.cancel(job.job_id), ann.sign(job), return_exceptions=True
            )
            assert [end for end in ended if isinstance(end, BaseException) and not isinstance(end, JobError)] == []
            assert (await ann.get(job.job_id)).state is JobState.CANCELLED
            with pytest.raises(JobError, match="is over"):
                await ann.sign(job)


async def test_jobs_of_thousands_of_clients_are_listed(tmp_path: Path) -> None:
    """Forty jobs that each name 6,000 clients take 6 MB: all are listed, in messages that fit."""
    async with serving(tmp_path) as service, service.dial() as operator:
        job = await service.world.submit("demo", ["a"])
        await service.world.runs.cancel(job.job_id, "ann")
        named = tuple(f"site-{number:020}" for number in range(6000))
        for number in range(39):
            other = replace(job, job_id=f"demo-{number:08}", clients=named, state=JobState.CANCELLED)
            await service.world.store.submit(other, "", None)
        page = await operator.list_jobs(40)
        assert (len({listed.job_id for listed in page.jobs}), page.next_page_token) == (40, "")
        assert page.jobs[0].clients == named
        assert [j.job_id for j in (await operator.list_jobs(3)).jobs] == [f"demo-{n:08}" for n in (38, 37, 36)]
