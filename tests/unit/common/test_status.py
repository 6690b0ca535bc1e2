"""Errors across gRPC, both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog

from kernfed import errors
from kernfed.errors import BusyError, KernfedError, QuorumNotMetError, UnavailableError, VersionMismatchError
from kernfed.status import INTERNAL_TEXT, STATUS, PeerStatus, StatusInterceptor, error_from_rpc, status_of
from kernfed_testing.limits import LIMIT_S


def subclasses(cls: type[KernfedError]) -> list[type[KernfedError]]:
    return [cls, *(s for sub in cls.__subclasses__() for s in subclasses(sub))]


def test_every_error_has_its_status() -> None:
    """A new error class without a line in the table fails here."""
    ours = [cls for cls in subclasses(KernfedError) if cls.__module__ == errors.__name__]
    assert len(ours) > 25
    assert [cls.__name__ for cls in ours if cls not in STATUS] == []
    assert status_of(QuorumNotMetError("x")) is grpc.StatusCode.FAILED_PRECONDITION


def test_reasons_are_unique() -> None:
    """A reason stands for one class, so that a peer can rebuild it."""
    reasons = [cls.reason for cls in STATUS]
    assert len(set(reasons)) == len(reasons)


class Handler(grpc.GenericRpcHandler):
    """Raises what the method's name asks for, in all four shapes of call."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        name = details.method.rpartition("/")[2]

        def fail() -> None:
            if name == "Boom":
                raise ZeroDivisionError("secret detail")
            if name == "Root":
                raise KernfedError("secret detail")
            if name == "Long":
                raise QuorumNotMetError("ä" * 5000)
            raise next(cls for cls in STATUS if cls.__name__ == name)("line one, ünïcode")

        async def unary(request: object, context: object) -> None:
            fail()

        async def stream(request: object, context: object) -> AsyncIterator[bytes]:
            yield b"first"
            fail()

        make = {
            "uu": (grpc.unary_unary_rpc_method_handler, unary),
            "us": (grpc.unary_stream_rpc_method_handler, stream),
            "su": (grpc.stream_unary_rpc_method_handler, unary),
            "ss": (grpc.stream_stream_rpc_method_handler, stream),
        }
        build, behaviour = make[details.method.split("/")[1]]
        return build(behaviour)


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(interceptors=[StatusInterceptor()])
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def drain(call: Any) -> None:
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call


async def fail(channel: Any, shape: str, name: str) -> grpc.aio.AioRpcError:
    async def requests() -> AsyncIterator[bytes]:
        yield b"x"

    method = f"/{shape}/{name}"
    calls: dict[str, Callable[[], Any]] = {
        "uu": lambda: channel.unary_unary(method)(b"x", timeout=LIMIT_S),
        "su": lambda: channel.stream_unary(method)(requests(), timeout=LIMIT_S),
        "us": lambda: channel.unary_stream(method)(b"x", timeout=LIMIT_S),
        "ss": lambda: channel.stream_stream(method)(requests(), timeout=LIMIT_S),
    }
    call = calls[shape]()
    ended = PeerStatus(call)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(call)
    return await ended.behind(caught.value)


@pytest.mark.parametrize("shape", ["uu", "us", "su", "ss"])
async def test_errors_cross_as_the_same_class(channel: grpc.aio.Channel, shape: str) -> None:
    """What the handler raises is what the caller gets, with its text."""
    for cls in STATUS:
        if STATUS[cls] is grpc.StatusCode.INTERNAL:
            continue
        rpc = await fail(channel, shape, cls.__name__)
        assert rpc.code() is STATUS[cls]
        back = error_from_rpc(rpc)
        assert type(back) is cls
        assert str(back) == "line one, ünïcode"


@pytest.mark.parametrize("shape", ["uu", "ss"])
@pytest.mark.parametrize("name", ["Boom", "Root"])
async def test_unexpected_errors_stay_here(channel: grpc.aio.Channel, shape: str, name: str) -> None:
    """The caller gets a fixed text; our log gets the exception."""
    with structlog.testing.capture_logs() as logs:
        rpc = await fail(channel, shape, name)
    assert rpc.code() is grpc.StatusCode.INTERNAL
    assert rpc.details() == INTERNAL_TEXT
    assert type(error_from_rpc(rpc)) is KernfedError
    (entry,) = [e for e in logs if e["event"] == "call failed"]
    assert "secret detail" in str(entry["exc_info"])


async def test_a_write_that_fails_by_the_end_of_a_call_does_not_hide_it(channel: Any) -> None:
    """Whichever of the two comes first, the caller learns with what the peer ended the call."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000

    for _ in range(20):
        call: Any = channel.stream_stream("/ss/QuorumNotMetError")(endless(), timeout=LIMIT_S)
        ended = PeerStatus(call)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drain(call)
        assert (await ended.behind(caught.value)).code() is grpc.StatusCode.FAILED_PRECONDITION
        assert type(error_from_rpc(await ended.end())) is QuorumNotMetError


async def test_long_text_is_cut_to_fit_headers(channel: grpc.aio.Channel) -> None:
    """A text that would overflow the HTTP headers is cut, and the class still crosses."""
    back = error_from_rpc(await fail(channel, "uu", "Long"))
    assert type(back) is QuorumNotMetError
    assert str(back).endswith("…")
    assert 100 < len(str(back)) < 5000


async def test_statuses_without_a_reason() -> None:
    """What grpc itself reports becomes the nearest error of ours."""

    def rpc(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "text")

    assert type(error_from_rpc(rpc(grpc.StatusCode.UNAVAILABLE))) is UnavailableError
    assert type(error_from_rpc(rpc(grpc.StatusCode.DEADLINE_EXCEEDED))) is UnavailableError
    assert type(error_from_rpc(rpc(grpc.StatusCode.RESOURCE_EXHAUSTED))) is BusyError
    assert type(error_from_rpc(rpc(grpc.StatusCode.UNIMPLEMENTED))) is VersionMismatchError
    assert type(error_from_rpc(rpc(grpc.StatusCode.DATA_LOSS))) is KernfedError
