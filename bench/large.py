"""A model of 1 GiB there and back between two processes with default settings: bit-equal, and with how much memory."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import session

SIZE = 1 << 30


async def coordinator(args: argparse.Namespace) -> None:
    """Send 1 GiB of random numbers to one client and compare what comes back, bit by bit."""
    import numpy as np

    from kernfed.methods.probe.messages import EchoRequest

    async with session.coordinator_with_clients(args) as cohort:
        sent = np.random.default_rng(1).random(args.size // 8)
        began = time.perf_counter()
        replies = await cohort.ask(EchoRequest(values=sent))
        seconds = time.perf_counter() - began
        (reply,) = replies.values()
        piece = 1 << 20
        equal = all(
            np.array_equal(reply.values[i : i + piece], sent[i : i + piece]) for i in range(0, sent.size, piece)
        )
        result = {"bit_equal": equal, "seconds": seconds, "coordinator_peak_mb": session.peak_mb()}
        print(json.dumps(result), flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", default="all")
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--size", type=int, default=SIZE)
    args = parser.parse_args()
    if args.role == "coordinator":
        asyncio.run(coordinator(args))
        return
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as folder, contextlib.ExitStack() as stack:
        root = Path(folder)
        session.identities(root, 1)
        command = [sys.executable, __file__, "coordinator", "--identity", str(root / "pki" / "coordinator")]
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None
        port = json.loads(next(line for line in server.stdout if line.startswith("{")))["port"]
        command = [sys.executable, session.__file__, "session-client", "--identity", str(root / "client-c0")]
        client = stack.enter_context(
            subprocess.Popen([*command, "--address", f"localhost:{port}"], stdout=subprocess.DEVNULL)
        )
        stack.callback(client.kill)
        line = next((line for line in server.stdout if line.startswith('{"bit_equal"')), None)
        if line is None:
            raise SystemExit("the coordinator ended without a result")
        result = json.loads(line)
        client_peak = session.peak_mb(client.pid)
        client.kill()
    print(
        f"\n1 GiB there and back: bit-equal {result['bit_equal']}, {result['seconds']:.1f} s, peak memory of the "
        f"coordinator {result['coordinator_peak_mb']:.0f} MB, of the client {client_peak:.0f} MB"
    )
    if not result["bit_equal"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
