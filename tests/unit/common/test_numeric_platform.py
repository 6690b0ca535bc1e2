"""Tests of `kernfed.numeric_platform`: the facts, with and without torch, and as a client reports them."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernfed.jobs.info import split_platform
from kernfed.numeric_platform import numeric_platform, with_platform
from kernfed_testing.limits import LIMIT_S

FACTS = """
import json, sys
from kernfed.numeric_platform import numeric_platform
without = numeric_platform()
assert "torch" not in sys.modules
import torch
print(json.dumps([str(without), str(numeric_platform()), torch.__version__, torch.backends.cpu.get_cpu_capability()]))
"""


@functools.cache
def facts(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FACTS], capture_output=True, timeout=LIMIT_S, check=True, env=os.environ | environment
    )
    told: list[str] = json.loads(done.stdout)
    return told


@pytest.mark.slow
def test_facts_of_this_process() -> None:
    """Where torch is not loaded it is not loaded for this; where it is, its instructions are told."""
    without, loaded, version, capability = facts()
    assert f"numpy {np.__version__}" in without
    assert f"torch {version} {capability}" in loaded
    assert capability not in without.partition("torch")[2]


@pytest.mark.slow
def test_a_kernel_that_is_chosen_by_hand_is_told() -> None:
    """OpenBLAS and torch can be made to compute as on an older processor; then the platform is another one."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "openblas" not in facts()[0] or "avx2" not in flags:
        pytest.skip("numpy has another library of linear algebra here, or the processor has one kernel alone")
    chosen = facts(OPENBLAS_CORETYPE="Haswell", ATEN_CPU_CAPABILITY="default")
    assert "Haswell" in chosen[0]
    assert chosen[1].endswith("DEFAULT")


@pytest.mark.parametrize(
    ("text", "processor"),
    [
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\n\nvendor_id\t: Other\n", "GenuineIntel family 6"),
        ("CPU implementer : 0x41\n", os.uname().machine),
        (None, os.uname().machine),
    ],
)
def test_the_processors_family(tmp_path: Path, text: str | None, processor: str) -> None:
    """As the system tells it of its first processor; where it does not, the architecture."""
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert numeric_platform(tmp_path / "cpuinfo").processor == processor


def test_what_a_client_reports_is_taken_apart_again() -> None:
    """A client of an earlier release reports its device alone."""
    assert split_platform(with_platform("cuda:0 (NVIDIA H200)")) == ("cuda:0 (NVIDIA H200)", str(numeric_platform()))
    assert split_platform("cpu (2 threads)") == ("cpu (2 threads)", "")
