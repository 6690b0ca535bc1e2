"""Rounds of the session beside a bare gRPC loop of the same shape, over TLS on loopback, in one run.

A round sends a payload to every client and, once a client has all of it, gets one of the same size back. The bare
loop is a bidirectional stream of 1 MiB chunks that looks at nothing and keeps nothing; the session checks every frame
and number, keeps replies until the round closes, and averages them. Coordinator and clients are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import numpy as np
import psutil

if TYPE_CHECKING:
    from kernfed.federation.cohort import Cohort

CHUNK = 1 << 20
SIZES = {"4 KB": 4096, "1 MB": 1_000_000, "64 MB": 64_000_000}
ROUNDS = {"4 KB": 300, "1 MB": 60, "64 MB": 4}
BARE_METHOD = "/bench/Bare"


# The bare loop.


def _chunks(size: int) -> list[bytes]:
    full, rest = divmod(size, CHUNK)
    return [bytes(CHUNK)] * full + ([bytes(rest)] if rest else [])


async def bare_coordinator(args: argparse.Namespace) -> None:
    from kernfed.pki.identity import server_credentials
    from kernfed.wire.channel import SERVER_OPTIONS

    ready = asyncio.Event()
    streams: list[tuple[Any, asyncio.Event]] = []

    async def connect(_frames: object, context: Any) -> None:
        await context.read()
        done = asyncio.Event()
        streams.append((context, done))
        if len(streams) == args.clients:
            ready.set()
        await done.wait()

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handler = grpc.stream_stream_rpc_method_handler(connect)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"Bare": handler}),))
    port = server.add_secure_port("localhost:0", server_credentials(args.identity))
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    await ready.wait()

    async def turn(context: Any, chunks: list[bytes]) -> None:
        async def read() -> None:
            left = sum(map(len, chunks))
            while left:
                left -= len(await context.read())

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            for chunk in chunks:
                await context.write(chunk)

    async def one_round(size: int) -> None:
        chunks = _chunks(size)
        async with asyncio.TaskGroup() as group:
            for context, _ in streams:
                group.create_task(turn(context, chunks))

    await _measure(args, one_round)
    for _, done in streams:
        done.set()
    await server.stop(1)


async def bare_client(args: argparse.Namespace) -> None:
    from kernfed.pki.identity import Identity, channel_credentials
    from kernfed.wire.channel import CHANNEL_OPTIONS

    me = Identity.load(args.identity)
    async with grpc.aio.secure_channel(args.address, channel_credentials(me), options=CHANNEL_OPTIONS) as channel:
        stream = channel.stream_stream(BARE_METHOD)()
        await stream.write(b"hello")
        while True:
            chunks: list[bytes] = []
            left = args.size
            while left:
                chunk = await stream.read()
                if not isinstance(chunk, bytes):
                    return
                chunks.append(chunk)
                left -= len(chunk)
            for chunk in chunks:
                await stream.write(chunk)


# The session.


@contextlib.asynccontextmanager
async def coordinator_with_clients(args: argparse.Namespace) -> AsyncIterator[Cohort]:
    """Serve sessions, print the port, and wait until `args.clients` clients are there."""
    from kernfed.federation.cohort import Cohort
    from kernfed.federation.quorum import Quorum
    from kernfed.pki.identity import server_credentials
    from kernfed.status import StatusInterceptor
    from kernfed.wire.channel import SERVER_OPTIONS
    from kernfed_server.federation.exchange import RemoteExchange
    from kernfed_server.federation.session import SessionLimits
    from kernfed_server.federation.sessions import SessionRegistry
    from kernfed_server.services.federation import FederationServicer

    spool = Path(tempfile.mkdtemp(prefix="kernfed-bench-"))
    registry = SessionRegistry(SessionLimits(), spool)
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[StatusInterceptor()])
    server.add_generic_rpc_handlers((FederationServicer(registry).handler(),))
    port = server.add_secure_port("localhost:0", server_credentials(args.identity))
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    while len(registry.present()) < args.clients:
        await registry.wait_change(10)
    exchange = RemoteExchange(registry, "ann", "probe")
    yield Cohort(exchange, registry.present(), job_id="bench", quorum=Quorum(min_fraction=1.0))
    registry.drain("bench over")
    await server.stop(1)
    shutil.rmtree(spool)


async def session_coordinator(args: argparse.Namespace) -> None:
    from kernfed.methods.probe.messages import EchoRequest

    sent = np.arange(args.size // 8, dtype=np.float64)
    count = 0
    async with coordinator_with_clients(args) as cohort:

        async def one_round(_size: int) -> None:
            nonlocal count
            count += 1
            cohort.enter_round(count)
            back = await cohort.mean(EchoRequest(values=sent))
            pieces = range(0, sent.size, CHUNK)  # whole, it would take more memory than all the rest
            if count % 10 == 1 and not all(
                np.allclose(back.values[i : i + CHUNK], sent[i : i + CHUNK]) for i in pieces
            ):
                raise SystemExit("the mean of the echoes is not what was sent")

        await _measure(args, one_round)


async def session_client(args: argparse.Namespace) -> None:
    from kernfed.federation.messages.catalogue import Requests
    from kernfed.methods.probe.messages import Echo, EchoRequest
    from kernfed.pki.identity import Identity
    from kernfed_client.daemon.answering import Answering
    from kernfed_client.daemon.reply_store import ReplyStore
    from kernfed_client.daemon.session import ClientSession, Offer
    from kernfed_client.daemon.tasks import TaskRunner
    from kernfed_client.daemon.worker import Worker

    runner = TaskRunner(
        Requests([EchoRequest]),
        lambda: {EchoRequest: lambda _job, request: Echo(num_rows=1, values=request.values)},
        lambda _job_id, _folder: object(),
        lambda _request, _task, _rows: None,
        lambda _task, _request, _reply, _payload: None,
        lambda _task, _err: None,
        Path(tempfile.gettempdir()),
        8 << 30,
    )
    offer = Offer("bench", ())
    store = None if args.no_store else ReplyStore(args.identity / "outbox", "")
    tasks = Answering(runner, Worker(), store)
    await ClientSession(lambda: Identity.load(args.identity), args.address, offer, tasks).run()


async def _measure(args: argparse.Namespace, one_round: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run rounds; print seconds per round, CPU seconds of all processes and this one's peak memory."""
    me = psutil.Process()
    others = [psutil.Process(pid) for pid in json.loads(sys.stdin.readline())]

    def cpu() -> float:
        return sum(p.cpu_times().user + p.cpu_times().system for p in (me, *others))

    await one_round(args.size)
    start, start_cpu = time.perf_counter(), cpu()
    times = []
    for _ in range(args.rounds):
        began = time.perf_counter()
        await one_round(args.size)
        times.append(time.perf_counter() - began)
    seconds, cpu_s = time.perf_counter() - start, cpu() - start_cpu
    gigabytes = 2 * args.size * args.clients * args.rounds / 1e9
    result = {
        "round_s": float(np.median(times)),
        "rounds_per_s": args.rounds / seconds,
        "mb_per_s": gigabytes * 1000 / seconds,
        "cpu_s_per_gb": cpu_s / gigabytes,
        "peak_mb": peak_mb(),
    }
    print(json.dumps(result), flush=True)


def peak_mb(pid: int | str = "self") -> float:
    """Largest resident memory that a process has had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _run(kind: str, clients: int, size: int, rounds: int, root: Path, store: bool) -> dict[str, float]:
    command = [sys.executable, __file__]
    common = [
        *([] if store else ["--no-store"]),
        "--clients",
        str(clients),
        "--size",
        str(size),
        "--rounds",
        str(rounds),
    ]
    coordinator = subprocess.Popen(
        [*command, f"{kind}-coordinator", "--identity", str(root / "pki" / "coordinator"), *common],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert coordinator.stdin is not None
    assert coordinator.stdout is not None
    port = json.loads(next(text for text in coordinator.stdout if text.startswith("{")))["port"]
    address = ["--address", f"localhost:{port}"]
    peers = [
        subprocess.Popen(
            [*command, f"{kind}-client", "--identity", str(root / f"client-c{i}"), *address, *common],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for i in range(clients)
    ]
    try:
        coordinator.stdin.write(json.dumps([p.pid for p in peers]) + "\n")
        coordinator.stdin.flush()
        line = next(text for text in coordinator.stdout if text.startswith('{"round_s"'))
        coordinator.wait(60)
        return dict(json.loads(line))
    finally:
        for process in (coordinator, *peers):
            process.kill()
            process.wait()


def compare(clients: int, label: str, root: Path, store: bool = True) -> dict[str, Any]:
    """Both loops, one after the other, twice; the better round time of each counts."""
    size, rounds = SIZES[label], ROUNDS[label]
    kinds = ("bare", "session")
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(2):
        for kind in kinds:
            runs[kind].append(_run(kind, clients, size, rounds, root, store))
    best = {kind: min(runs[kind], key=lambda r: r["round_s"]) for kind in kinds}
    return {
        "clients": clients,
        "payload": label,
        **{f"{kind}_{key}": value for kind in kinds for key, value in best[kind].items()},
        "ratio": best["bare"]["round_s"] / best["session"]["round_s"],
    }


def identities(root: Path, clients: int) -> None:
    """A CA, a coordinator and clients c0, c1, ... under `root`."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from kernfed.pki.identity import Role
    from kernfed_testing.identities import make_identities

    made = make_identities(root)
    for i in range(clients):
        made.make(Role.CLIENT, f"c{i}", into=root / f"client-c{i}")


def main() -> None:
    """Run one role, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", default="all")
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--address", default="")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", default="", help="e.g. '10:64 MB'")
    parser.add_argument("--no-store", action="store_true", help="clients keep no replies on disk")
    args = parser.parse_args()
    roles = {
        "bare-coordinator": bare_coordinator,
        "bare-client": bare_client,
        "session-coordinator": session_coordinator,
        "session-client": session_client,
    }
    if args.role in roles:
        from kernfed.service import run

        run(roles[args.role](args))
        return
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as folder:
        root = Path(folder)
        identities(root, 10)
        head = f"{'clients':>7} {'payload':>8} {'bare ms':>9} {'kernfed ms':>10} {'ratio':>6} {'kernfed rounds/s':>16}"
        print(f"{head} {'MB/s':>7} {'CPU s/GB bare':>13} {'kernfed':>8} {'peak MB bare':>12} {'kernfed':>8}")
        for clients in (2, 10):
            for label in SIZES:
                if args.only and args.only != f"{clients}:{label}":
                    continue
                r = compare(clients, label, root, not args.no_store)
                print(
                    f"{clients:>7} {label:>8} {r['bare_round_s'] * 1e3:>9.2f} {r['session_round_s'] * 1e3:>10.2f} "
                    f"{r['ratio']:>6.2f} {r['session_rounds_per_s']:>16.1f} {r['session_mb_per_s']:>7.0f} "
                    f"{r['bare_cpu_s_per_gb']:>13.2f} {r['session_cpu_s_per_gb']:>8.2f} {r['bare_peak_mb']:>12.0f} "
                    f"{r['session_peak_mb']:>8.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
