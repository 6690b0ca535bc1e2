"""For every test: a command that was run in this process leaves the logging of the next test alone.

Where CI is set, properties are tried on the same inputs each time: a change is judged by what it changed.
"""

import os

# Before numpy is loaded: threads that wait for each other cost more here than they bring.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()
