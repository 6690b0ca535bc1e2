"""For every test: a command that was run in this process leaves the logging of the next test alone, and what tests
leave open fails one of their own module.

Where CI is set, properties are tried on the same inputs each time: a change is judged by what it changed. The profile
`thorough` tries five times as many: make test-unit ARGS="--hypothesis-profile thorough"; `quick`, of `make test-quick`,
a fifth.
"""

import gc
import os
import shutil
import signal

# Before numpy is loaded: threads that wait for each other cost more here than they bring.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Folders of tests lie in memory where there is some: nothing here outlives the machine, so no disk is waited for.
if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

# No deadlines: they would judge the machine's other work. A test that hangs is ended by pytest's own limit.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("quick", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")

_LONGEST = ("test_restored.py", "test_soak.py")


@pytest.fixture(autouse=True, scope="module")
def _nothing_left_open() -> Iterator[None]:
    """Files, sockets and processes without an owner are found here, and not in the midst of a later module."""
    yield
    gc.collect()
    gc.freeze()  # what is left is loaded libraries: looking through them again and again would cost a tenth of a second


def pytest_collection() -> None:
    """Nothing that is loaded here is garbage: to look for some is a quarter of the time in which tests are found."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on there is some, but not among what was loaded."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Attacks bear the mark `redteam`, which `make redteam` runs, and tell what they are by their first sentence.

    Files whose single tests take longest come first, so that no worker is left with one of them at the end.
    """
    items.sort(key=lambda item: not _takes_long(item.path))
    for item in items:
        if item.path.name.startswith("test_hostile") or "adversary" in item.path.parts:
            item.add_marker("redteam")
        if item.get_closest_marker("redteam"):
            said = (getattr(getattr(item, "function", None), "__doc__", "") or item.name).strip().splitlines()[0]
            item.user_properties.append(("attack", said))


def _takes_long(path: Path) -> bool:
    return path.name in _LONGEST or "experiments" in path.parts


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, bool, bool]:
    """Let a test's limit ring again and again: an event loop may swallow the error that it raises in a callback."""
    is_set = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, 5.0)
    return is_set


def pytest_sessionfinish() -> None:
    """Let the last collection see everything."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()
