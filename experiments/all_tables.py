"""Every table and figure of the papers, one after the other, each compared with its record.

`make experiment NAME=all ARGS=--quick` takes about half an hour on two cores. Without `--quick` each script has the
size of the paper, and says first what it takes: days in all. `--middle` is between the two. Scripts that were finished
before an interruption are not run again, as long as neither they nor kernfed have changed since: what they wrote lies
in the folder `--out`.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from records import RECORDS, add_sizes, differences, of_size

import kernfed
import kernfed_client
import kernfed_server
import kernfed_simulation

PACKAGES = (kernfed, kernfed_client, kernfed_server, kernfed_simulation)
HERE = Path(__file__).resolve().parent
SCRIPTS = {
    f"{path.parent.name}-{path.stem.replace('_', '-')}": f"{path.parent.name}.{path.stem}"
    for path in sorted(HERE.glob("*/*.py"))
    if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")
}
"""Each experiment's name -> its module: `newton-table4` is `newton/table4.py`."""


def main(arguments: list[str] | None = None) -> int:
    """Run, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sizes(parser, "few draws of small problems")
    parser.add_argument(
        "--only", nargs="+", choices=SCRIPTS, default=[*SCRIPTS], metavar="NAME", help=", ".join(SCRIPTS)
    )
    parser.add_argument("--limit-s", type=float, default=48 * 3600.0, help="seconds after which a script is ended")
    options = parser.parse_args(arguments)
    size: str = of_size(options, quick="quick", middle="middle", paper="")
    out = options.out / "-".join(["all", *([size] if size else [])])
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for i, name in enumerate(options.only, 1):
        done = out / f"{name}.done"
        place = f"[{i}/{len(options.only)}] {name}"
        made_by = sources(name)
        if done.exists() and done.read_text() == made_by:
            print(f"{place}: was finished before", flush=True)
            continue
        print(f"{place} …", flush=True)
        began = time.monotonic()
        ended, why = _run(name, size, out, options.limit_s)
        seconds = time.monotonic() - began
        if why:
            failed.append(name)
            print(f"{place}: {why} after {seconds:.0f} s; see {ended}", flush=True)
        else:
            done.write_text(made_by)
            print(f"{place}: {seconds:.0f} s", flush=True)
    apart = compare(out, size)
    print("\n".join(apart) if apart else "all numbers that have a record are within its errors")
    print(f"tables (.log, .json) and pictures: {out}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def sources(name: str) -> str:
    """Digest of what a script's numbers follow from: it and its modules, and the packages of kernfed."""
    room = HERE / SCRIPTS[name].partition(".")[0]
    return _digest([*HERE.glob("*.py"), *room.glob("*.py")]) + _of_packages()


@functools.cache
def _of_packages() -> str:
    roots = [Path(str(package.__file__)).parent for package in PACKAGES]
    return _digest([path for root in roots for path in root.rglob("*.py")])


def _digest(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.read_bytes())
    return found.hexdigest()


def _run(name: str, size: str, out: Path, limit_s: float) -> tuple[Path, str]:
    """Run a script; its output's file, and what went wrong."""
    log = out / f"{name}.log"
    command = [sys.executable, str(HERE), name, *([f"--{size}"] if size else []), "--out", str(out)]
    with log.open("w") as written:
        try:
            ended = subprocess.run(command, stdout=written, stderr=subprocess.STDOUT, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return log, "took too long and was ended"
    return log, "" if ended.returncode == 0 else f"ended with {ended.returncode}"


def compare(out: Path, size: str) -> list[str]:
    """What differs from the records, for people."""
    told = []
    for path in sorted(out.glob("*.json")):
        record = RECORDS / "-".join([*([size] if size else []), path.name])
        if not record.exists():
            told.append(f"{path.stem}: nothing is recorded of this size")
            continue
        told += [
            f"{path.stem}: {apart}"
            for apart in differences(json.loads(path.read_text()), json.loads(record.read_text()))
        ]
    return told
