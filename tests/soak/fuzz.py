"""`make fuzz`: bends input to every reader of bytes for as long as it is told; what breaks one goes to tests/corpus."""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernfed_testing.fuzz import CORPUS, Target, bend, targets

LIMIT_S = 2.0
LIMIT_BYTES = 1 << 30
"""By which resident memory may grow."""


def fuzz(name: str, target: Target, seconds: float, draw: random.Random) -> tuple[int, int]:
    """Bend and read; inputs tried, and how many broke the reader."""
    tried, broke = 0, set()
    end = time.monotonic() + seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() < end:
        data = bend(draw, target.examples)
        began = time.monotonic()
        error = ""
        try:
            target.feed(data)
        except Exception as err:
            error = f"{type(err).__name__}: {err}"[:200]
        if time.monotonic() - began > LIMIT_S:
            error = f"took {time.monotonic() - began:.1f} s"
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory > LIMIT_BYTES >> 10:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            error = "took more than a GiB of memory"
        tried += 1
        if error and error.split(":")[0] not in broke:
            broke.add(error.split(":")[0])
            path = CORPUS / name / hashlib.sha256(data).hexdigest()[:16]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"{name}: {error}: kept as {path}", flush=True)
    return tried, len(broke)


def main() -> int:
    """Fuzz all readers in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all readers together")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    draw = random.Random(args.seed)
    total = broken = 0
    with tempfile.TemporaryDirectory(prefix="kernfed-fuzz-") as folder:
        found = targets(Path(folder))
        for name, target in found.items():
            tried, broke = fuzz(name, target, args.seconds / len(found), draw)
            total, broken = total + tried, broken + broke
    print(f"{total} inputs to {len(found)} readers, {broken} ways to break one, seed {args.seed}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
