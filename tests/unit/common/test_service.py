"""Set-up of a service's process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernfed_testing.limits import LIMIT_S

_LIMITS = """
import resource
from kernfed.service import raise_descriptor_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, min(hard, 3000)))
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.slow
def test_the_limit_of_descriptors_is_raised_as_far_as_the_system_lets_it() -> None:
    """From a soft limit of 256 to the hard one."""
    done = subprocess.run([sys.executable, "-c", _LIMITS], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    told, soft, hard = map(int, done.stdout.split())
    assert told == soft == hard > 256
