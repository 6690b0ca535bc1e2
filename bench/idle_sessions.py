"""1,000 idle and 50 active sessions at one coordinator: memory per idle session, round time with and without them.

The coordinator is a process of its own, over mutual TLS on loopback; clients speak the protocol by hand, many in a
process, each over a connection of its own, so that what is measured is the coordinator and not a thousand daemons.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import psutil

ACTIVE, IDLE = 50, 1000
PER_PROCESS = 250
ROUNDS = 40
SIZE = 4096


async def coordinator(args: argparse.Namespace) -> None:
    """Serve; measure when told to on stdin, over the active clients only."""
    import gc
    import time

    from kernfed.federation.cohort import Cohort
    from kernfed.federation.quorum import Quorum
    from kernfed.methods.probe.messages import EchoRequest
    from kernfed.pki.identity import server_credentials
    from kernfed.status import StatusInterceptor
    from kernfed.wire.channel import SERVER_OPTIONS
    from kernfed_server.federation.exchange import RemoteExchange
    from kernfed_server.federation.session import SessionLimits
    from kernfed_server.federation.sessions import SessionRegistry
    from kernfed_server.services.federation import FederationServicer

    registry = SessionRegistry(SessionLimits(), Path(tempfile.gettempdir()))
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[StatusInterceptor()])
    server.add_generic_rpc_handlers((FederationServicer(registry).handler(),))
    port = server.add_secure_port("localhost:0", server_credentials(args.identity))
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    loop = asyncio.get_running_loop()
    sent = np.arange(SIZE // 8, dtype=np.float64)
    count = 0
    while wanted := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        async with asyncio.timeout(300):
            while len(registry.present()) < int(wanted):
                await registry.wait_change(5)
        await asyncio.sleep(3)  # let handshakes settle
        gc.collect()
        rss = psutil.Process().memory_info().rss
        active = [name for name in registry.present() if name.startswith("c")]
        cohort = Cohort(RemoteExchange(registry, "ann", "probe"), active, job_id="bench", quorum=Quorum(min_fraction=1))
        times = []
        for _ in range(ROUNDS):
            count += 1
            cohort.enter_round(count)
            began = time.perf_counter()
            await cohort.mean(EchoRequest(values=sent))
            times.append(time.perf_counter() - began)
        print(
            json.dumps({"sessions": len(registry.present()), "rss": rss, "round_s": float(np.median(times))}),
            flush=True,
        )
    registry.drain("bench over")
    await server.stop(1)


async def clients(args: argparse.Namespace) -> None:
    """Many sessions by hand: heartbeats, and echoes where they are asked."""
    from kernfed.methods.probe.messages import Echo, EchoRequest
    from kernfed.pki.identity import Identity, channel_credentials
    from kernfed.v1 import federation_service_pb2 as pb
    from kernfed.v1 import task_pb2
    from kernfed.wire.channel import CHANNEL_OPTIONS
    from kernfed.wire.codec import encode
    from kernfed.wire.frames import CONNECT_METHOD, PROTOCOL_VERSION, identity
    from kernfed.wire.incoming import IncomingPayload
    from kernfed.wire.outgoing import payload_to_proto

    alone = [("grpc.use_local_subchannel_pool", 1)]
    beat = pb.ConnectRequest(heartbeat=pb.Heartbeat()).SerializeToString()

    async def one(folder: Path) -> None:
        me = Identity.load(folder)
        options = [*CHANNEL_OPTIONS, *alone]
        async with grpc.aio.secure_channel(args.address, channel_credentials(me), options=options) as channel:
            stream = channel.stream_stream(
                CONNECT_METHOD, request_serializer=identity, response_deserializer=identity
            )()
            hello = pb.Hello(protocol_version=PROTOCOL_VERSION, software_version="bench", instance_id=folder.name)
            await stream.write(pb.ConnectRequest(hello=hello).SerializeToString())

            async def beats() -> None:
                while True:
                    await asyncio.sleep(5)
                    await stream.write(beat)

            beating = asyncio.ensure_future(beats())
            while isinstance(data := await stream.read(), bytes):
                frame = pb.ConnectResponse.FromString(data)
                if frame.HasField("task"):
                    task = frame.task
                    request = IncomingPayload(EchoRequest, task.payload, 1 << 20, {}).message()
                    payload = payload_to_proto(encode(Echo(num_rows=1, values=request.values)), 0)
                    reply = task_pb2.TaskReply(task_id=task.task_id, payload=payload)
                    await stream.write(pb.ConnectRequest(reply=reply).SerializeToString())
            beating.cancel()

    folders = [args.identity / line for line in sys.stdin.read().split()]
    gate = asyncio.Semaphore(20)

    async def later(folder: Path) -> None:
        async with gate:
            await asyncio.sleep(0.02)
        await one(folder)

    await asyncio.gather(*(later(folder) for folder in folders))


def _clients_process(root: Path, names: list[str], port: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, __file__, "clients", "--identity", str(root), "--address", f"localhost:{port}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("\n".join(names))
    process.stdin.close()
    return process


def measure(idle: int, root: Path) -> dict[str, float]:
    """Round time with the active sessions, and with the idle ones beside them."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from kernfed.pki.identity import Role
    from kernfed_testing.identities import make_identities

    made = make_identities(root)
    names = [f"c{i}" for i in range(ACTIVE)] + [f"i{i}" for i in range(idle)]
    for name in names:
        made.make(Role.CLIENT, name, into=root / name)
    serving = subprocess.Popen(
        [sys.executable, __file__, "coordinator", "--identity", str(root / "pki" / "coordinator")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdin is not None
    assert serving.stdout is not None
    processes = [serving]

    def rounds(sessions: int) -> dict[str, float]:
        assert serving.stdin is not None
        assert serving.stdout is not None
        serving.stdin.write(f"{sessions}\n")
        serving.stdin.flush()
        return dict(json.loads(next(text for text in serving.stdout if text.startswith("{"))))

    try:
        port = json.loads(next(text for text in serving.stdout if text.startswith("{")))["port"]
        processes.append(_clients_process(root, names[:ACTIVE], port))
        rounds(ACTIVE)  # warm-up
        alone = rounds(ACTIVE)
        for start in range(ACTIVE, len(names), PER_PROCESS):
            processes.append(_clients_process(root, names[start : start + PER_PROCESS], port))
        both = rounds(len(names))
        return {
            "idle": both["sessions"] - ACTIVE,
            "kb_per_idle": (both["rss"] - alone["rss"]) / 1024 / (both["sessions"] - ACTIVE),
            "alone_ms": alone["round_s"] * 1e3,
            "both_ms": both["round_s"] * 1e3,
            "ratio": both["round_s"] / alone["round_s"],
        }
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Run one role, or print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", default="all")
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--address", default="")
    parser.add_argument("--idle", type=int, default=IDLE)
    args = parser.parse_args()
    if args.role != "all":
        from kernfed.service import run

        run({"coordinator": coordinator, "clients": clients}[args.role](args))
        return
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as folder:
        found = measure(args.idle, Path(folder))
    print(f"{'idle':>6} {'active':>6} {'KB per idle':>12} {'round ms alone':>15} {'with idle':>10} {'ratio':>6}")
    print(
        f"{found['idle']:>6.0f} {ACTIVE:>6} {found['kb_per_idle']:>12.0f} {found['alone_ms']:>15.2f} "
        f"{found['both_ms']:>10.2f} {found['ratio']:>6.2f}"
    )


if __name__ == "__main__":
    main()
