"""`make fuzz`: bends input to every reader of bytes for as long as it is told; what breaks one goes to tests/corpus.

Where atheris is installed (`pip install atheris`), half of the time goes to inputs that it finds by the coverage of
kernfed's code.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernfed_testing.hostile.fuzz import CORPUS, Target, bend, targets

LIMIT_S = 2.0
"""Of processor time for one input, so that the machine's other work breaks no reader."""
LIMIT_BYTES = 1 << 30
"""By which resident memory may grow."""


def fuzz(name: str, target: Target, seconds: float, draw: random.Random, last: Path) -> tuple[int, int]:
    """Bend and read; inputs tried, and how many broke the reader. `last` holds the one under way."""
    tried, broke = 0, set()
    end = time.monotonic() + seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() < end:
        data = bend(draw, target.examples)
        last.write_bytes(data)
        began = time.process_time()
        error = ""
        try:
            target.feed(data)
        except Exception as err:
            error = f"{type(err).__name__}: {err}"[:200]
        if time.process_time() - began > LIMIT_S:
            error = f"took {time.process_time() - began:.1f} s"
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory > LIMIT_BYTES >> 10:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            error = "took more than a GiB of memory"
        tried += 1
        if error and error.split(":")[0] not in broke:
            broke.add(error.split(":")[0])
            keep(name, data, error)
    return tried, len(broke)


def apart(name: str, seconds: float, seed: int) -> tuple[int, int]:
    """Fuzz one reader in a process of its own: libraries may end it, and then its last input broke it."""
    with tempfile.TemporaryDirectory(prefix="kernfed-fuzz-") as folder:
        last = Path(folder) / "last"
        command = [sys.executable, __file__, "--reader", name, "--last", str(last)]
        ended = subprocess.run(
            [*command, "--seconds", str(seconds), "--seed", str(seed)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=seconds + 300,
            check=False,
        )
        *said, counts = ended.stdout.splitlines() or [""]
        print("\n".join(said), end="\n" if said else "", flush=True)
        if ended.returncode:
            keep(name, last.read_bytes() if last.exists() else b"", f"its process ended with {ended.returncode}")
            return 0, 1
        tried, broke = counts.split()
        return int(tried), int(broke)


def guided(name: str, seconds: float) -> tuple[int, int]:
    """Let atheris look for input; inputs tried, and how many broke the reader."""
    with tempfile.TemporaryDirectory(prefix="kernfed-fuzz-") as folder:
        ended = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("guided.py")), name, f"{max(seconds, 1):.0f}", folder],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + 120,
            check=False,
        )
        found = sorted(Path(folder).iterdir())
        for path in found:
            keep(name, path.read_bytes(), _last_words(ended.stdout + ended.stderr))
    tried = re.search(r"number_of_executed_units: (\d+)", ended.stderr)
    if ended.returncode and not found:
        raise SystemExit(f"{name}: atheris ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return int(tried[1]) if tried else 0, len(found)


def _last_words(text: str) -> str:
    """The line of a traceback or of libFuzzer that says what broke."""
    lines = [
        line for line in text.splitlines() if re.match(r"\w*(Error|Exception)\b|\w+\.\w+Error|.*ERROR: libFuzzer", line)
    ]
    return lines[0][:200] if lines else "broke"


def keep(name: str, data: bytes, error: str) -> None:
    """Put an input that broke a reader where the tests read it again."""
    path = CORPUS / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"{name}: {error}: kept as {path}", flush=True)


def main() -> int:
    """Fuzz all readers in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all readers together")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--reader", help="this one alone, in this process")
    parser.add_argument("--last", type=Path, help="where its input under way is kept")
    args = parser.parse_args()
    total = broken = 0
    with tempfile.TemporaryDirectory(prefix="kernfed-fuzz-") as folder:
        found = targets(Path(folder))
        if args.reader:
            last = args.last or Path(folder) / "last"
            print(*fuzz(args.reader, found[args.reader], args.seconds, random.Random(args.seed), last))
            return 0
        with_atheris = importlib.util.find_spec("atheris") is not None
        each = args.seconds / len(found) / (1 + with_atheris)
        for name in found:
            results = [apart(name, each, args.seed)]
            if with_atheris:
                results.append(guided(name, each))
            print(f"{name}: {' + '.join(str(tried) for tried, _ in results)} inputs", flush=True)
            total += sum(tried for tried, _ in results)
            broken += sum(broke for _, broke in results)
    print(f"{total} inputs to {len(found)} readers, {broken} ways to break one, seed {args.seed}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
