"""Calls of `OperatorService`, typed: for the operator's commands and for scripts.

async with OperatorClient(Identity.load(Path("pki/operator-ann"))) as operator:
    job = await operator.submit(Path("job.toml").read_text())
    async for update in operator.watch(job.job_id):
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from kernfed import files
from kernfed.errors import BusyError, ConfigError, JobError, KernfedError, UnavailableError, WireError
from kernfed.jobs.info import ArtifactInfo, ClientInfo, JobInfo, JobPage, JobUpdate, NumberedEvent, PageLink
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity, Role, channel_credentials
from kernfed.pki.submission import sign_job
from kernfed.pki.tls_diagnosis import diagnose_failure
from kernfed.status import PeerStatus, error_from_rpc
from kernfed.v1 import operator_service_pb2 as pb
from kernfed.v1 import operator_service_pb2_grpc
from kernfed.wire.channel import address, split_address
from kernfed.wire.operator import artifact_from_proto, client_from_proto, job_from_proto, update_from_proto
from kernfed.wire.proxy import channel_options

T = TypeVar("T")

WATCH_S = 3600.0
"""A watch longer than this is asked again from where it was."""

PIECE_BYTES = 1 << 20
"""Of an upload."""

_RETRY_S = (0.2, 5.0)


class OperatorClient:
    """One operator's channel to the coordinator. Use as an async context manager."""

    def __init__(
        self, identity: Identity, coordinator: str | None = None, *, timeout_s: float = 30.0, patience_s: float = 120.0
    ) -> None:
        """Prepare the channel; nothing is dialled yet.

        Args:
            identity: The operator's.
            coordinator: `host:port`; that of the identity where unset.
            timeout_s: For each call, and for each piece of a longer answer.
            patience_s: How long a watch waits for a coordinator that went away.

        Raises:
            ConfigError: No address is known.
        """
        dialled = coordinator or identity.coordinator
        if not dialled:
            raise ConfigError(f"{identity.folder} names no coordinator: give --coordinator host:port")
        split_address(dialled)
        self._address = dialled
        self._identity = identity
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._channel = grpc.aio.secure_channel(
            dialled, channel_credentials(identity), options=channel_options(dialled)
        )
        self._stub = operator_service_pb2_grpc.OperatorServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def submit(self, job_toml: str, request_id: str | None = None) -> JobInfo:
        """Sign a job file, have the coordinator check it, and queue it.

        Args:
            job_toml: Text of the file.
            request_id: The same id gets the same job; unset: drawn here, so that a retry does not submit twice.

        Raises:
            ConfigError: The file is wrong.
            UnknownClientError: It names a client that is not enrolled.
            SubmissionError: The coordinator does not take the signature, e.g. for a clock that is wrong.
        """
        request = pb.SubmitJobRequest(
            job_toml=job_toml,
            request_id=request_id or secrets.token_hex(16),
            submission=sign_job(job_toml, self._identity, utc_now()),
        )
        try:
            response = await self._call(self._stub.SubmitJob, request)
        except UnavailableError:  # it may have come through; the id makes asking again safe
            response = await self._call(self._stub.SubmitJob, request)
        return job_from_proto(response.job)

    async def sign(self, job: JobInfo) -> JobInfo:
        """Sign a job of this operator that lies at the coordinator without a signature, by the text that it has there.

        Raises:
            JobError: It is over, or signed, or of another operator.
            SubmissionError: The coordinator does not take the signature.
        """
        submission = sign_job(job.job_toml, self._identity, utc_now(), job.job_id)
        request = pb.SignJobRequest(job_id=job.job_id, submission=submission)
        return job_from_proto((await self._call(self._stub.SignJob, request)).job)

    async def upload(self, content: bytes) -> str:
        """Keep a file at the coordinator, for jobs that name it by its SHA-256; one that is there is not sent again.

        Returns:
            The SHA-256, 64 hexadecimal digits.

        Raises:
            WireError: The file is empty or larger than the coordinator takes.
            UnavailableError: The coordinator cannot write it.
        """
        digest = await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())

        async def requests() -> AsyncIterator[pb.UploadFileRequest]:
            yield pb.UploadFileRequest(sha256=digest, size=len(content))
            for start in range(0, len(content), PIECE_BYTES):
                yield pb.UploadFileRequest(data=content[start : start + PIECE_BYTES])

        await self._call(self._stub.UploadFile, requests(), extra_s=len(content) / 1e6)  # a slow line: 1 MB/s
        return digest

    async def list_jobs(self, page_size: int = 100, page_token: str = "") -> JobPage:
        """Jobs, newest first, without their files, in as many messages as they take."""
        jobs: list[JobInfo] = []
        while True:
            request = pb.ListJobsRequest(page_size=page_size - len(jobs), page_token=page_token)
            response = await self._call(self._stub.ListJobs, request)
            jobs += map(job_from_proto, response.jobs)
            page_token = response.next_page_token
            if not page_token or not response.jobs or len(jobs) >= page_size:
                return JobPage(tuple(jobs), page_token)

    async def get(self, job_id: str) -> JobInfo:
        """One job, by its id or a unique beginning of it."""
        return job_from_proto((await self._call(self._stub.GetJob, pb.GetJobRequest(job_id=job_id))).job)

    async def cancel(self, job_id: str) -> JobInfo:
        """Stop a job; returns it as it ended."""
        request = pb.CancelJobRequest(job_id=job_id)
        return job_from_proto((await self._call(self._stub.CancelJob, request, extra_s=30.0)).job)

    async def clients(self) -> list[ClientInfo]:
        """Clients of the federation, sorted by name."""
        found: list[ClientInfo] = []
        token = ""  # nosec B105  # of a page
        while True:
            response = await self._call(self._stub.ListClients, pb.ListClientsRequest(page_token=token))
            found += [client_from_proto(client) for client in response.clients]
            if response.next_page_token <= token:  # the last page; names are sorted
                return found
            token = response.next_page_token

    async def page_link(self) -> PageLink:
        """A link that signs this operator in to the coordinator's page, once.

        Raises:
            ConfigError: The coordinator serves no page.
            VersionMismatchError: It is of a release that has none.
        """
        response = await self._call(self._stub.MakePageLink, pb.MakePageLinkRequest())
        host, _, port = response.address.rpartition(":")
        where = response.address if host else address(split_address(self._address)[0], int(port))
        url = f"https://{where}/sign-in#{response.code}"
        return PageLink(url, response.expires_at.ToDatetime(UTC))

    async def artifacts(self, job_id: str) -> list[ArtifactInfo]:
        """Files that a job left, sorted by name."""
        request = pb.ListArtifactsRequest(job_id=job_id)
        response = await self._call(self._stub.ListArtifacts, request, extra_s=120.0)  # large files are hashed
        return [artifact_from_proto(artifact) for artifact in response.artifacts]

    async def watch(
        self, job_id: str, from_sequence: int = 1, on_gap: Callable[[str], None] = lambda _: None
    ) -> AsyncGenerator[JobUpdate, None]:
        """A job, its events from one on, those to come, and at the end the job again.

        Goes on by itself when the coordinator was away for a while.

        Args:
            job_id: Which job.
            from_sequence: First event wanted.
            on_gap: Told why the line was lost, each time.

        Raises:
            UnknownJobError: There is none.
            UnavailableError: The coordinator stayed away.
        """
        following = max(from_sequence, 1)
        lost_at: float | None = None
        delay = _RETRY_S[0]
        connected = False
        while True:
            try:
                async with contextlib.aclosing(self._watch_once(job_id, following)) as updates:
                    async for update in updates:
                        connected, lost_at, delay = True, None, _RETRY_S[0]
                        if update.event is not None and update.event.sequence:
                            following = update.event.sequence + 1
                        yield update
                return
            except _WatchAgainError:
                continue
            except (UnavailableError, BusyError) as err:
                now = time.monotonic()
                if not connected or (lost_at is not None and now - lost_at > self._patience_s):
                    raise
                if lost_at is None:
                    lost_at = now
                    on_gap(str(err))
                await asyncio.sleep(delay)
                delay = min(delay * 2, _RETRY_S[1])

    async def events(self, job_id: str) -> list[NumberedEvent]:
        """Events of a job by now, in order, without waiting for more."""
        found: list[NumberedEvent] = []
        bare = 0
        async with asyncio.timeout(10 * self._timeout_s), contextlib.aclosing(self._watch_once(job_id, 1)) as updates:
            async for update in updates:
                if update.event is not None:
                    found += [update.event] if update.event.sequence else []
                elif (bare := bare + 1) == 2:  # the job again: the stored events are through
                    break
        return found

    async def fetch(self, job_id: str, folder: Path, names: Iterable[str] = ()) -> list[Path]:
        """Copy artifacts to a folder, each whole or not at all, its SHA-256 checked.

        Args:
            job_id: Which job.
            folder: Made where it does not exist.
            names: Which artifacts; none: all.

        Returns:
            Paths of the files.

        Raises:
            UnknownArtifactError: The job left no artifact of a name.
            WireError: What arrived is not what was announced.
        """
        wanted = list(names) or [artifact.name for artifact in await self.artifacts(job_id)]
        if not wanted:
            job = await self.get(job_id)
            raise JobError(f"job {job.job_id} ({job.state}) has left no artifacts yet; it leaves them when it ends")
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        except OSError as err:
            raise ConfigError(f"{folder}: cannot be made: {err.strerror}") from err
        return [await self._fetch_one(job_id, name, folder) for name in wanted]

    async def _fetch_one(self, job_id: str, name: str, folder: Path) -> Path:
        if name != os.path.basename(name) or name in ("", ".", "..") or "\0" in name:
            raise WireError(f"artifact name {name[:128]!r} is not a plain file name")
        call = self._stub.FetchArtifact(pb.FetchArtifactRequest(job_id=job_id, name=name))
        announced: ArtifactInfo | None = None
        size = 0
        try:
            with files.Part(folder / name, mode=0o644) as part:
                async with contextlib.aclosing(self._pieces(call)) as pieces:
                    async for response in pieces:
                        if response.HasField("artifact"):
                            announced = artifact_from_proto(response.artifact)
                        size += len(response.data)
                        if announced is None or size > announced.size:
                            raise WireError(f"{name}: the coordinator sends more than it announced")
                        await asyncio.to_thread(part.add, response.data)
                if announced is None or size != announced.size or part.digest.hexdigest() != announced.sha256:
                    raise WireError(f"{name}: what arrived is not what the coordinator announced; fetch it again")
                await asyncio.to_thread(part.keep, durable=True)
        except BaseException:
            call.cancel()
            raise
        return folder / name

    async def _watch_once(self, job_id: str, from_sequence: int) -> AsyncGenerator[JobUpdate, None]:
        request = pb.WatchJobRequest(job_id=job_id, from_sequence=from_sequence, batches=True)
        call = self._stub.WatchJob(request, timeout=WATCH_S)
        try:
            async for response in call:
                for update in response.updates or (response,):
                    yield update_from_proto(update)
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise _WatchAgainError from None
            raise await self._explained(err) from None
        finally:
            call.cancel()

    async def _pieces(self, call: Any) -> AsyncGenerator[pb.FetchArtifactResponse, None]:
        try:
            while True:
                async with asyncio.timeout(self._timeout_s):
                    response = await call.read()
                if response is grpc.aio.EOF:
                    return
                yield response
        except TimeoutError:
            raise UnavailableError(f"no piece of the file for {self._timeout_s:g} s; try again") from None
        except grpc.aio.AioRpcError as err:
            raise await self._explained(err) from None

    async def _call(self, method: Callable[..., Awaitable[T]], request: Any, extra_s: float = 0.0) -> T:
        call = method(request, timeout=self._timeout_s + extra_s)
        ended = PeerStatus(call)
        try:
            return await call
        except grpc.aio.AioRpcError as err:
            raise await self._explained(await ended.behind(err)) from None

    async def _explained(self, err: grpc.aio.AioRpcError) -> KernfedError:
        """The error behind a failed call; where the line itself failed, what is wrong with it."""
        error = error_from_rpc(err)
        answered = any(key == "kernfed-reason" for key, _ in err.trailing_metadata() or ())
        if err.code() is grpc.StatusCode.UNAVAILABLE and not answered:
            return await asyncio.to_thread(diagnose_failure, self._address, self._identity, role=Role.OPERATOR)
        return error


class _WatchAgainError(Exception):
    """The time of one watch is over; the job is not."""
