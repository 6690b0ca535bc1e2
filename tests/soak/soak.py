"""`make soak`: jobs of every method, each met by several faults at once or one after another; one line at the end.

Exit status 1 if a job hung, ended otherwise than its undisturbed twin without a word, failed without a reason, or if a
process wrote a traceback. Jobs are numbered: `--first 17 --jobs 1` runs that one alone, with the same draws. Some
federations share the work; that of every fourth job keeps its books in PostgreSQL, where its programs are installed.
Disks are filled up where this user may mount some (root).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = (
    "0"  # read as grpc is loaded: its handlers kill programs that run as other users
)

from kernfed_testing import forked, nodes
from kernfed_testing.crashes import soak
from kernfed_testing.crashes.faults import Faults
from kernfed_testing.machine import postgres
from kernfed_testing.machine.postgres import Cluster
from kernfed_testing.machine.shifted_clock import set_by_file

LONGEST_S = 300.0
"""A job that takes longer after its last fault hangs."""


def _say(text: str) -> None:
    print(text, flush=True)


async def _run(numbers: Sequence[int], seed: int, cluster: Cluster | None) -> soak.Result:
    """Run the jobs of these numbers in one federation."""
    database = None if cluster is None else cluster.new_database()
    with tempfile.TemporaryDirectory(prefix="kernfed-soak-", ignore_cleanup_errors=True) as folder:
        async with soak.federation(Path(folder), database) as fed:
            faults = Faults(fed, cluster)
            try:
                if not await faults.give_disks():
                    _say("no disk is filled up: this user may mount none")
                return await soak.Soak(fed, faults, seed, _say).run(numbers)
            finally:
                faults.take_disks_away()


@contextlib.contextmanager
def _cluster() -> Iterator[Cluster | None]:
    if postgres.binaries() is None:
        yield None
        return
    with postgres.cluster() as cluster:
        yield cluster


async def run(numbers: Sequence[int], seed: int, federations: int) -> int:
    """Run it; the exit status."""
    nodes.LIMIT_S = LONGEST_S
    result = soak.Result()
    with _cluster() as cluster:
        with_postgres = [n for n in numbers if n % 4 == 3] if cluster is not None else []
        others = sorted(set(numbers) - {*with_postgres})
        shares = [(cluster, with_postgres), *((None, others[i::federations]) for i in range(federations))]
        for found in await asyncio.gather(*(_run(share, seed, books) for books, share in shares if share)):
            result.add(found)
    for name, count in sorted(result.faults.items()):
        _say(f"{count:5} {name}")
    for wrong in result.wrong:
        _say(wrong)
    _say(result.line(seed))
    return 1 if result.wrong else 0


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=17, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--federations", type=int, default=2, help="at a time, beside the one with PostgreSQL")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernfed-clock-") as folder:
        os.environ |= set_by_file(Path(folder))
        forked.preload("grpc.aio", "kernfed_server.app", "kernfed_client.app", "kernfed_client.cli")
        return asyncio.run(run(range(args.first, args.first + args.jobs), args.seed, args.federations))


if __name__ == "__main__":
    sys.exit(main())
