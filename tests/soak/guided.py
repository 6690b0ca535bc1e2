"""Fuzz one reader guided by the coverage of kernfed's code (atheris, from LLVM's libFuzzer); called by `make fuzz`.

libFuzzer ends this process at the first input that breaks the reader, and leaves the input in a file.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import atheris
import structlog

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["kernfed", "kernfed_client", "kernfed_server"]):
    from kernfed_testing.hostile.fuzz import CORPUS, targets


def main() -> None:
    """Arguments: the reader's name, the seconds, a folder for what breaks it."""
    name, seconds, broken = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    folder = Path(tempfile.mkdtemp(prefix="kernfed-fuzz-"))
    target = targets(folder / "files")[name]
    seeds = folder / "seeds"
    seeds.mkdir()
    kept = sorted((CORPUS / name).glob("*"))
    for i, data in enumerate([*target.examples, *(path.read_bytes() for path in kept)]):
        (seeds / str(i)).write_bytes(data)

    def one(data: bytes) -> None:
        target.feed(data)

    options = [f"-max_total_time={seconds}", f"-artifact_prefix={broken}/", "-rss_limit_mb=4000", "-timeout=5"]
    quiet = ["-verbosity=0", "-print_final_stats=1", "-max_len=8192"]
    atheris.Setup([sys.argv[0], *options, *quiet, str(seeds)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
