"""`OperatorService`: authenticates, converts, asks the run manager, converts back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from cryptography import x509

from kernfed.errors import ConfigError, SubmissionError, UnavailableError
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Role, require
from kernfed.pki.submission import prove
from kernfed.v1 import operator_service_pb2 as pb
from kernfed.v1 import operator_service_pb2_grpc
from kernfed.wire.operator import artifact_to_proto, client_to_proto, job_to_proto
from kernfed_server.jobs.tasks.manager import RunManager
from kernfed_server.keeping.artifacts import read_pieces
from kernfed_server.web.door import Page

Context = grpc.aio.ServicerContext[Any, Any]

PAGE_BYTES = 1 << 20
"""Of clients in one answer; a client's texts are bounded when they come in, so that each fits."""

PIECE_S = 60.0
"""A piece of an upload that takes longer ends it."""


class OperatorServicer(operator_service_pb2_grpc.OperatorServiceServicer):
    """Calls that operators may make to the coordinator."""

    def __init__(self, runs: RunManager, ca: x509.Certificate, page: Page | None = None) -> None:
        """Make the servicer.

        Args:
            runs: All jobs.
            ca: The federation's, by which submissions are judged as the clients will judge them.
            page: The operator's page; None: none is served.
        """
        self._runs = runs
        self._ca = ca
        self._page = page

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        """Check a job file and queue it."""
        operator = require(context, Role.OPERATOR)
        submission = request.submission if request.HasField("submission") else None
        if submission is not None:
            signed = prove(submission, request.job_toml, self._ca, operator.federation, utc_now())
            if signed.serial != operator.serial:
                raise SubmissionError(
                    f"the job is signed by another certificate than that of {operator}, who submits it"
                )
            if signed.job_id:
                raise SubmissionError(f"what is signed is job {signed.job_id[:128]!r}, and no new one")
        job = await self._runs.submit(request.job_toml, request.request_id, operator.name, submission)
        return pb.SubmitJobResponse(job=job_to_proto(job))

    async def SignJob(self, request: pb.SignJobRequest, context: Context) -> pb.SignJobResponse:
        """Sign a job that came without a signature."""
        operator = require(context, Role.OPERATOR)
        job = await self._runs.get(request.job_id)
        signed = prove(request.submission, job.job_toml, self._ca, operator.federation, utc_now())
        if signed.serial != operator.serial or signed.job_id != job.job_id:
            raise SubmissionError(f"this is not job {job.job_id}, signed by {operator}; use `kernfed job sign`")
        job = await self._runs.sign(job.job_id, request.submission, operator.name)
        return pb.SignJobResponse(job=job_to_proto(job))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """Jobs, newest first, as many as fit a message: a job of thousands of clients names them all."""
        require(context, Role.OPERATOR)
        page_size = request.page_size
        while True:
            page = await self._runs.list_jobs(page_size, request.page_token)
            response = pb.ListJobsResponse(jobs=map(job_to_proto, page.jobs), next_page_token=page.next_page_token)
            if (num_bytes := response.ByteSize()) <= PAGE_BYTES or len(page.jobs) == 1:
                return response
            page_size = max(min(len(page.jobs) * PAGE_BYTES // num_bytes, len(page.jobs) - 1), 1)

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        """One job."""
        require(context, Role.OPERATOR)
        return pb.GetJobResponse(job=job_to_proto(await self._runs.get(request.job_id)))

    async def WatchJob(self, request: pb.WatchJobRequest, context: Context) -> AsyncIterator[pb.WatchJobResponse]:
        """Events of a job, until it is over."""
        require(context, Role.OPERATOR)
        async with contextlib.aclosing(self._runs.watch(request.job_id, request.from_sequence)) as batches:
            async for batch in batches:
                for message in (batch.message,) if request.batches else batch.singly():
                    yield message

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:
        """Stop a job."""
        operator = require(context, Role.OPERATOR)
        return pb.CancelJobResponse(job=job_to_proto(await self._runs.cancel(request.job_id, operator.name)))

    async def ListArtifacts(self, request: pb.ListArtifactsRequest, context: Context) -> pb.ListArtifactsResponse:
        """Files that a job left."""
        require(context, Role.OPERATOR)
        found = await self._runs.artifacts(request.job_id)
        return pb.ListArtifactsResponse(artifacts=map(artifact_to_proto, found))

    async def FetchArtifact(
        self, request: pb.FetchArtifactRequest, context: Context
    ) -> AsyncIterator[pb.FetchArtifactResponse]:
        """Content of one of them: what it is, then its pieces."""
        require(context, Role.OPERATOR)
        artifact, path = await self._runs.find_artifact(request.job_id, request.name)
        yield pb.FetchArtifactResponse(artifact=artifact_to_proto(artifact))
        async with contextlib.aclosing(read_pieces(path)) as pieces:
            async for piece in pieces:
                yield pb.FetchArtifactResponse(data=piece)

    async def ListClients(self, request: pb.ListClientsRequest, context: Context) -> pb.ListClientsResponse:
        """Clients of the federation, as many as fit a message; the next page begins behind the last."""
        require(context, Role.OPERATOR)
        rest = [c for c in await self._runs.clients() if c.name > request.page_token]
        response, num_bytes = pb.ListClientsResponse(), 0
        for client in rest:
            encoded = client_to_proto(client)
            num_bytes += encoded.ByteSize()
            if response.clients and num_bytes > PAGE_BYTES:
                response.next_page_token = response.clients[-1].name
                break
            response.clients.append(encoded)
        return response

    async def UploadFile(
        self, request_iterator: AsyncIterator[pb.UploadFileRequest], context: Context
    ) -> pb.UploadFileResponse:
        """Keep a file that job files name by its SHA-256."""
        require(context, Role.OPERATOR)
        requests = aiter(request_iterator)
        head = await _next_piece(requests)
        announced = pb.UploadFileRequest() if head is None else head
        known = await self._runs.uploads.receive(announced.sha256, announced.size, _data(requests))
        return pb.UploadFileResponse(known=known)

    async def MakePageLink(self, request: pb.MakePageLinkRequest, context: Context) -> pb.MakePageLinkResponse:
        """A link to the operator's page that signs in once."""
        operator = require(context, Role.OPERATOR)
        if self._page is None:
            raise ConfigError(
                "this coordinator serves no page: set `listen` or `port` in [web] of the coordinator file"
            )
        code, expires_at = self._page.door.make_code(operator)
        response = pb.MakePageLinkResponse(address=self._page.address, code=code)
        response.expires_at.FromDatetime(expires_at)
        return response


async def _data(requests: AsyncIterator[pb.UploadFileRequest]) -> AsyncIterator[bytes]:
    while (request := await _next_piece(requests)) is not None:
        yield request.data


async def _next_piece(requests: AsyncIterator[pb.UploadFileRequest]) -> pb.UploadFileRequest | None:
    try:
        async with asyncio.timeout(PIECE_S):
            return await anext(requests, None)
    except TimeoutError:
        raise UnavailableError(f"upload: no piece for {PIECE_S:g} s; send the file again") from None
