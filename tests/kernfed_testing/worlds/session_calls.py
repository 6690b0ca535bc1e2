"""Sessions without sockets, and a step that is being asked of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Self

import numpy as np

from kernfed.arrays import Floats
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.quorum import Quorum
from kernfed.jobs.info import ClientInfo
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import PROTOCOL_VERSION
from kernfed.wire.outgoing import payload_to_proto
from kernfed_server.federation.exchange import RemoteExchange
from kernfed_server.federation.open_call import OpenCall
from kernfed_server.federation.session import Session
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_server.services.federation import _Reader, _SessionOverError
from kernfed_testing.limits import LIMIT_S

REQUEST = EchoRequest(values=np.arange(3.0))
TASK = "job/1/probe.echo"


def connect(registry: SessionRegistry, name: str, instance: str = "1", **hello: Any) -> Session:
    frame = pb.Hello(**{"protocol_version": PROTOCOL_VERSION, "instance_id": instance, **hello})
    session = registry.open(ClientInfo(name, peer=f"ipv4:192.0.2.1:{instance}"), f"serial-{name}", frame)
    registry.start(session)
    return session


async def drain(session: Session) -> list[pb.ConnectResponse]:
    """Frames that are queued for a client."""
    frames = []
    while session.outgoing.backlog:
        frame = await session.outgoing.next()
        assert frame is not None
        frames.append(pb.ConnectResponse.FromString(frame))
    return frames


async def tasks(session: Session) -> list[str]:
    return [f.task.task_id for f in await drain(session) if f.HasField("task")]


async def said(registry: SessionRegistry, session: Session, *frames: pb.ConnectRequest) -> None:
    """A client's frames arrive, and its stream ends."""
    left = [frame.SerializeToString() for frame in frames]

    class Stream:
        async def read(self) -> bytes | None:
            return left.pop(0) if left else None

    stream: Any = Stream()
    with contextlib.suppress(_SessionOverError):
        await _Reader(registry, session, stream).run()


def opened(registry: SessionRegistry, task_id: str = TASK) -> OpenCall:
    """A call that waits for replies."""
    call = registry.call(task_id)
    assert call is not None
    return call


class Asked:
    """A step that is being asked, and the events of its job."""

    def __init__(self, registry: SessionRegistry, clients: list[str], **quorum: Any) -> None:
        self.registry = registry
        self.events: list[JobEvent] = []
        exchange = RemoteExchange(registry, "ann", "probe")
        cohort = Cohort(exchange, clients, job_id="job", quorum=Quorum(**quorum), observe=self.events.append)
        cohort.enter_round(1)
        self.cohort = cohort
        self.asking = asyncio.ensure_future(cohort.ask(REQUEST))

    async def begun(self) -> Self:
        async with asyncio.timeout(LIMIT_S):
            while self.registry.call(TASK) is None:
                await asyncio.sleep(0)
        return self

    def reply(self, session: Session, values: Floats | None = None) -> None:
        payload = payload_to_proto(encode(Echo(num_rows=1, values=REQUEST.values if values is None else values)), 1)
        call = opened(self.registry)
        call.on_message(session.name, call.receive(session, task_pb2.TaskReply(task_id=TASK, payload=payload)))

    async def result(self) -> dict[str, Echo]:
        return await asyncio.wait_for(self.asking, LIMIT_S)

    def of(self, kind: EventKind) -> list[tuple[str, str]]:
        return [(e.client, e.message) for e in self.events if e.kind is kind]
