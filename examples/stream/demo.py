"""Three stations learn while they are fed: `python examples/stream/demo.py`.

Starts a coordinator and three client daemons on this machine, over mutual TLS. Readings are added to each client's
folder while the job runs; one client is killed with SIGKILL in mid-stream, and started again while readings go on
coming in. At the end every reading must be counted once. All it makes is in one folder, by default `.stream-demo/`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobState
from kernfed.pki.identity import Identity
from kernfed.wire.operator_client import OperatorClient

HERE = Path(__file__).resolve().parent
STATIONS = ("aotizhongxin", "dingling", "wanliu")
HISTORY = 200
"""Rows from which ranges are known before the stream begins."""

BIN = Path(sys.executable).parent
LIMIT_S = 180.0
START_TIMEOUT_S = 300.0


def run(name: str, *args: str | Path) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(
        [str(BIN / name), *map(str, args)], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{name} {args[0]} failed:\n{done.stderr}")
    return done.stdout


class Daemon:
    """A process in a folder of its own; it logs into a file there."""

    def __init__(self, folder: Path, name: str, *args: str) -> None:
        self.folder = folder
        self._command = [str(BIN / name), *args]
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd=self.folder)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


class Station:
    """A site: its folder, its daemon, and readings that are yet to come."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.folder = root / name
        self.folder.mkdir()
        token = json.loads(run("kernfed", "pki", "token", name, "--dir", root / "pki", "--json"))["token"]
        run("kernfed-client", "enrol", token, "--identity", self.folder / "identity")
        with (HERE / "data" / f"{name}.csv").open(newline="") as file:
            self._header, *rows = list(csv.reader(file))
        self._rows = iter(rows[HISTORY:])
        self._write(self.folder / "history.csv", [self._header, *rows[:HISTORY]])
        (self.folder / "readings").mkdir()
        self._write(self.folder / "readings" / "0001.csv", [self._header])
        (self.folder / "client.toml").write_text(
            "threads = 1\nreconnect_max_s = 1\n[policy]\nmin_rows = 1\n"
            '[datasets.air.train]\npath = "history.csv"\n[datasets.air.stream]\nsource = "follow"\npath = "readings"\n'
        )
        self.daemon = Daemon(self.folder, "kernfed-client", "run")
        self.fed = 0

    @staticmethod
    def _write(path: Path, rows: list[list[str]], mode: str = "w") -> None:
        with path.open(mode, newline="") as file:
            csv.writer(file).writerows(rows)

    def feed(self, count: int) -> None:
        """Add readings, as a sensor would."""
        rows = [row for row, _ in zip(self._rows, range(count), strict=False)]
        self._write(self.folder / "readings" / "0001.csv", rows, "a")
        self.fed += len(rows)


async def learn(root: Path, stations: dict[str, Station]) -> None:
    """Feed, kill, restart, count."""
    operator = next((root / "pki").glob("operator-*"))
    async with OperatorClient(Identity.load(operator)) as client:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(KernfedError):
                if {c.name for c in await client.clients() if c.connected} >= set(STATIONS):
                    break
            if time.monotonic() > deadline:
                raise SystemExit(f"the clients did not connect; read {root}/*/kernfed-client.log")
            await asyncio.sleep(0.2)
        job = await client.submit(
            (HERE / "online.toml").read_text().replace("metrics_every = 50", "metrics_every = 20")
        )
        print(f"job {job.job_id} runs; readings come in")

        async def counted(wanted: int) -> None:
            """Wait until so many readings are counted; more would be one counted twice."""
            async with asyncio.timeout(LIMIT_S):
                async for update in client.watch(job.job_id):
                    event = update.event.event if update.event else None
                    if event and event.kind is EventKind.ROUND_CLOSED and event.metrics:
                        rows = int(event.metrics.training["rows"])
                        if rows > wanted:
                            raise SystemExit(f"{rows} readings counted, but only {wanted} were fed")
                        if rows == wanted:
                            pooled = event.metrics.pooled.get("personal", {})
                            error = f", mean squared error so far {pooled['mse']:.0f}" if "mse" in pooled else ""
                            print(f"round {event.round_num}: all {rows} readings are counted once{error}")
                            return

        def fed() -> int:
            return sum(s.fed for s in stations.values())

        for station in stations.values():
            station.feed(60)
        await counted(fed())
        victim = stations["dingling"]
        for station in stations.values():
            station.feed(40)
        await asyncio.sleep(0.3)
        victim.daemon.kill()
        print("dingling is killed in mid-stream (SIGKILL); the others go on, and its readings wait in its folder")
        for station in stations.values():
            station.feed(60)
        await asyncio.sleep(1.0)
        victim.daemon.start()
        print("dingling is started again")
        await counted(fed())
        for _ in range(20):
            for station in stations.values():
                station.feed(4)
            await asyncio.sleep(0.05)
        await counted(fed())
        await client.cancel(job.job_id)
        ended = await client.get(job.job_id)
        if ended.state is not JobState.CANCELLED:
            raise SystemExit(f"the job is {ended.state}: {ended.error_message}")
        await client.fetch(job.job_id, root / "artifacts")
        findings = json.loads((root / "artifacts" / "findings.json").read_text())["online"]
        for name, facts in findings["clients"].items():
            print(f"  {name}: regret {facts['regret']:.3f}, at most {facts['regret_bound']:.3f}")
        print(f"the coordinator has {root / 'artifacts'}/online.safetensors; predict with a station's own model:")
        print(
            f"  kernfed-client predict --config {stations['wanliu'].folder}/client.toml --job {job.job_id} "
            f"--data {HERE / 'data' / 'wanliu.csv'} --out predictions.csv"
        )


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path(".stream-demo"), help="Folder to make; replaced if a demo's.")
    root: Path = parser.parse_args().dir.resolve()
    if root.exists():
        if any(root.iterdir()) and not (root / "pki").is_dir():
            raise SystemExit(f"{root} holds something else than a demo; give another --dir")
        shutil.rmtree(root)
    root.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        port, enrolment_port = (s.getsockname()[1] for s in sockets)
    run(
        *("kernfed", "pki", "init", "--federation", "air", "--dir", root / "pki", "--host", "localhost"),
        *("--port", str(port), "--enrol-port", str(enrolment_port)),
    )
    (root / "coordinator.toml").write_text(
        f'listen = "127.0.0.1:{port}"\nenrolment_listen = "127.0.0.1:{enrolment_port}"\n'
    )
    daemons = [Daemon(root, "kernfed-coordinator", "run", "--port-file", "ports")]
    try:
        daemons[0].start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (root / "ports").exists():
            if time.monotonic() > deadline:
                raise SystemExit(f"the coordinator did not start; read {root}/kernfed-coordinator.log")
            time.sleep(0.05)
        stations = {name: Station(root, name) for name in STATIONS}
        daemons += [s.daemon for s in stations.values()]
        for station in stations.values():
            station.daemon.start()
        asyncio.run(learn(root, stations))
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


if __name__ == "__main__":
    main()
