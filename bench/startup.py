"""How long it takes to import, to start, and to be connected; and what an idle process weighs.

Processor seconds are those of all threads until then. A machine with other work leaves them nearly as they are.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
import session

BIN = Path(sys.executable).parent


IDLE_S = 15.0
"""After a client is connected, until nothing is loaded in the background any more."""
REPEAT = 3
"""The best of so many counts."""


@dataclass(frozen=True)
class Took:
    """What a start took."""

    seconds: float
    processor: float
    megabytes: float = 0.0


def command(*words: str) -> Took:
    """A command, from beginning to end."""
    began, used = time.perf_counter(), _children()
    subprocess.run(words, check=True, capture_output=True)
    return Took(time.perf_counter() - began, _children() - used)


def until_line(process: subprocess.Popen[str], words: str) -> Took:
    """A process until it logs a line that holds `words`."""
    began = time.perf_counter()
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            seen = psutil.Process(process.pid)
            used = seen.cpu_times()
            return Took(time.perf_counter() - began, used.user + used.system, seen.memory_info().rss / 1e6)
    raise SystemExit(f"the process ended before it logged {words!r}")


def best(measure: Callable[[], Took]) -> Took:
    """The least of each number."""
    found = [measure() for _ in range(REPEAT)]
    return Took(*(min(getattr(took, f.name) for took in found) for f in fields(Took)))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def services(root: Path) -> dict[str, Took]:
    """A coordinator until it is ready, and its first client until it is connected; then both end."""
    run = ("run", "--log-format", "json")
    began = [str(BIN / "kernfed-coordinator"), *run, "--port-file", "ports"]
    coordinator = subprocess.Popen(began, cwd=root, stderr=subprocess.PIPE, text=True)
    try:
        ready = until_line(coordinator, "coordinator ready")
        port = (root / "ports").read_text().split()[0]
        (root / "client.toml").write_text(f'coordinator = "localhost:{port}"\nidentity = "client-c0"\n')
        client = subprocess.Popen([str(BIN / "kernfed-client"), *run], cwd=root, stderr=subprocess.PIPE, text=True)
        try:
            connected = until_line(client, "session open")
            time.sleep(IDLE_S)
            weights = [psutil.Process(process.pid).memory_info().rss / 1e6 for process in (coordinator, client)]
        finally:
            client.terminate()
            client.wait(20)
    finally:
        coordinator.terminate()
        coordinator.wait(20)
    return {
        "coordinator ready": ready,
        "client connected": connected,
        "coordinator idle": Took(0.0, 0.0, weights[0]),
        "client idle": Took(0.0, 0.0, weights[1]),
    }


def main() -> None:
    """Print the table."""
    rows = {
        "python itself": best(lambda: command(sys.executable, "-c", "pass")),
        "import kernfed": best(lambda: command(sys.executable, "-c", "import kernfed")),
        "kernfed --help": best(lambda: command(str(BIN / "kernfed"), "--help")),
    }
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as folder:
        root = Path(folder)
        session.identities(root, 1)
        (root / "coordinator.toml").write_text('listen = "127.0.0.1:0"\nenrolment_listen = "127.0.0.1:0"\n')
        found = [services(root) for _ in range(REPEAT)]
    rows |= {name: best(iter([each[name] for each in found]).__next__) for name in found[0]}
    print(f"\n{'start-up':<20} {'seconds':>8} {'processor':>10} {'MB':>6}")
    for name, took in rows.items():
        times = f"{took.seconds:>8.2f} {took.processor:>10.2f}" if took.seconds else f"{'':>19}"
        print(f"{name:<20} {times} {took.megabytes or '':>6.0f}" if took.megabytes else f"{name:<20} {times}")


if __name__ == "__main__":
    main()
