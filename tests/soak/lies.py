"""Every lie in every number of every step of every method, told by one of four clients: a line each, with what came.

A lie has to leave its client out by name, to fail with its name, to harm nobody much, or to be told of in a note that
names the client. Ends with 1 where one does not. CI tells a few of them. A lie in a step that several variants of a
method ask is told in the first. Give words to run only variants that hold one of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import structlog

from kernfed_testing.hostile.lies import Liars
from kernfed_testing.methods.variants import METHODS


def main(words: list[str]) -> int:
    """Tell all lies; how many were not noticed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    outcomes: Counter[str] = Counter()
    told: set[tuple[str, str]] = set()
    for variant in METHODS:
        if METHODS[variant]["name"] == "probe" or (words and not any(word in variant for word in words)):
            continue
        begun = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            liars = Liars(variant, Path(folder))
            for lie in liars.lies():
                method = "" if lie.step.startswith(("data.", "evaluation.")) else METHODS[variant]["name"]
                if (method, str(lie)) in told:
                    continue
                told.add((method, str(lie)))
                found = liars.tell(lie)
                outcomes[found.outcome] += 1
                said = " ".join(found.said.split())[:300]
                print(f"{found.outcome:9} {variant} | {lie} | x{found.harm:.3g} {said}", flush=True)
        print(f"{variant}: {time.process_time() - begun:.1f} s", flush=True)
    print(f"{sum(outcomes.values())} lies: " + ", ".join(f"{n} {outcome}" for outcome, n in outcomes.most_common()))
    return sum(n for outcome, n in outcomes.items() if outcome.isupper())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(1 if main(sys.argv[1:]) else 0)
