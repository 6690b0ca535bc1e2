"""The keepalive options of both ends fit together: an idle line is neither cut nor called an offence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kernfed.pki.identity import Identity, channel_credentials, server_credentials
from kernfed.wire.channel import CHANNEL_OPTIONS, KEEPALIVE_INTERVAL_S, SERVER_OPTIONS
from kernfed_testing.identities import make_identities
from kernfed_testing.limits import LIMIT_S

FASTER = 20


def sooner(options: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The same options with every time divided by `FASTER`."""
    return [(name, value // FASTER if name.endswith("_ms") else value) for name, value in options]


async def test_an_idle_stream_outlives_many_pings(tmp_path: Path) -> None:
    """After two pings too many a server would end the line with "too many pings"; it does not."""
    made = make_identities(tmp_path)
    done = asyncio.Event()

    async def hold(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.read()
        await done.wait()
        await context.write(b"still here")

    server = grpc.aio.server(options=sooner(SERVER_OPTIONS))
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(hold)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Hold": handler}),))
    port = server.add_secure_port("localhost:0", server_credentials(made.coordinator))
    await server.start()
    credentials = channel_credentials(Identity.load(made.client("cleveland")))
    try:
        async with grpc.aio.secure_channel(
            f"localhost:{port}", credentials, options=sooner(CHANNEL_OPTIONS)
        ) as channel:
            stream: Any = channel.stream_stream("/test/Hold")()
            await stream.write(b"hello")
            answer = asyncio.ensure_future(stream.read())
            finished, _ = await asyncio.wait([answer], timeout=8 * KEEPALIVE_INTERVAL_S / FASTER)
            assert not finished
            done.set()
            assert await asyncio.wait_for(answer, LIMIT_S) == b"still here"
    finally:
        await server.stop(0)
