"""`make soak`: jobs of every method, each with a kill, a cut or a restart; one line at the end.

Exit status 1 if a job did not finish, was not disturbed, or ended otherwise than its undisturbed twin. Takes about ten
seconds per job.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernfed_testing import nodes, soak


async def run(jobs: int, seed: int) -> int:
    """Run it; the exit status."""
    nodes.LIMIT_S = 180.0
    with tempfile.TemporaryDirectory(prefix="kernfed-soak-") as folder:
        async with soak.federation(Path(folder)) as fed:
            result = await soak.Soak(fed, seed, lambda text: print(text, flush=True)).run(jobs)
    print(result.line(jobs))
    return 0 if result.finished == jobs == len(result.faults) and not result.different else 1


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    return asyncio.run(run(args.jobs, args.seed))


if __name__ == "__main__":
    sys.exit(main())
