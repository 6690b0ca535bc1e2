"""How long it takes to import, to start, and to be connected; and what an idle process weighs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import session

BIN = Path(sys.executable).parent


def seconds(*command: str, repeat: int = 3) -> float:
    """Best wall time of a command."""
    best = float("inf")
    for _ in range(repeat):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return best


def until_line(process: subprocess.Popen[str], words: str) -> float:
    """Seconds until a process logs a line that holds `words`."""
    began = time.perf_counter()
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return time.perf_counter() - began
    raise SystemExit(f"the process ended before it logged {words!r}")


def main() -> None:
    """Print the table."""
    bare = seconds(sys.executable, "-c", "pass")
    rows = [
        ("python itself", bare, ""),
        ("import kernfed", seconds(sys.executable, "-c", "import kernfed"), ""),
        ("kernfed --help", seconds(str(BIN / "kernfed"), "--help"), ""),
    ]
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as folder:
        root = Path(folder)
        session.identities(root, 1)
        (root / "coordinator.toml").write_text('listen = "127.0.0.1:0"\nenrolment_listen = "127.0.0.1:0"\n')
        command = [str(BIN / "kernfed-coordinator"), "run", "--log-format", "json", "--port-file", "ports"]
        coordinator = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
        try:
            ready = until_line(coordinator, "coordinator ready")
            port = (root / "ports").read_text().split()[0]
            client_file = root / "client.toml"
            client_file.write_text(f'coordinator = "localhost:{port}"\nidentity = "client-c0"\n')
            command = [str(BIN / "kernfed-client"), "run", "--log-format", "json"]
            client = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
            try:
                connected = until_line(client, "session open")
                weight = psutil.Process(coordinator.pid).memory_info().rss / 1e6
                rows += [
                    ("coordinator ready", ready, f"{weight:.0f} MB"),
                    ("client connected", connected, "target: 3 s"),
                ]
            finally:
                client.terminate()
                client.wait(20)
        finally:
            coordinator.terminate()
            coordinator.wait(20)
    print(f"\n{'start-up':<20} {'seconds':>8}")
    for name, value, note in rows:
        print(f"{name:<20} {value:>8.2f}  {note}")


if __name__ == "__main__":
    main()
