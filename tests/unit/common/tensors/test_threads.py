"""Threads of the maths libraries, as the sizes of the matrices decide them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kernfed_testing.limits import LIMIT_S

COUNT_THREADS = """
import json
from threading import Thread
from threadpoolctl import threadpool_info
from kernfed.tensors.threads import LARGE, allow, suited

def told():
    return sorted(pool["num_threads"] for pool in threadpool_info())

found = [told()]
with suited(LARGE - 1):
    found.append(told())
    with suited(LARGE):
        found.append(told())
    found.append(told())
found.append(told())
allow(3)
with suited(LARGE):
    found.append(told())
with suited(1):
    found.append(told())

def elsewhere():
    with suited(1):
        found.append(told())

thread = Thread(target=elsewhere)
thread.start()
thread.join()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_small_matrices_have_one_thread_in_every_library() -> None:
    """numpy, scipy and torch have one below a size and theirs from it, also within each other, and in other threads."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env=environment,
    )
    before, small, large, small_again, after, allowed, one, elsewhere = json.loads(done.stdout)
    assert len(before) >= 2
    assert set(before) == set(large) == set(after) == {2}
    assert set(small) == set(small_again) == set(one) == set(elsewhere) == {1}
    assert set(allowed) == {3}
