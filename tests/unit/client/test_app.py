"""What the daemon prepares before it dials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernfed.jobs.client_file import load_client_file
from kernfed.jobs.info import split_platform
from kernfed.numeric_platform import numeric_platform
from kernfed_client.daemon.maths import prepare
from kernfed_testing.limits import LIMIT_S

COUNT_THREADS = """
import json, sys
from pathlib import Path
from threadpoolctl import threadpool_info
from kernfed.jobs.client_file import load_client_file
from kernfed_client.daemon.maths import prepare

told, _ = prepare(load_client_file(Path(sys.argv[1])))
print(json.dumps([told, sorted({pool["num_threads"] for pool in threadpool_info()})]))
"""


def client_file(tmp_path: Path, **keys: object) -> Path:
    path = tmp_path / "client.toml"
    path.write_text('device = "cpu"\n' + "".join(f"{key} = {value}\n" for key, value in keys.items()))
    return path


@pytest.mark.slow
def test_threads_of_all_maths_libraries(tmp_path: Path) -> None:
    """`threads` holds for torch and for the BLAS of numpy and of scipy: idle threads that spin slow the others down."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS, str(client_file(tmp_path, threads=1))],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env=environment,
    )
    told, threads = json.loads(done.stdout)
    assert (split_platform(told)[0], threads) == ("cpu (1 threads)", [1])


def test_device_is_told(tmp_path: Path) -> None:
    """On the CPU by choice there is nothing to explain."""
    told, note = prepare(load_client_file(client_file(tmp_path)))
    device, platform = split_platform(told)
    assert device.startswith("cpu (")
    assert platform == str(numeric_platform())
    assert len(told) <= 200  # of which a coordinator keeps no more
    assert note == ""
