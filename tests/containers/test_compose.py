"""docker-compose.yml: `make up`, a job from the host, `make down`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from kernfed_testing.machine.containers import TAG
from kernfed_testing.machine.ports import free_port

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).resolve().parents[2]
OVERRIDES = ("deploy/compose.gpu.yml", "deploy/compose.postgres.yml")


def commands() -> list[list[str]]:
    """The compose commands of this machine: v1, v2 or both."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False, timeout=60)
    found = [["docker", "compose"]] if plugin.returncode == 0 else []
    return found + ([["docker-compose"]] if shutil.which("docker-compose") else [])


@pytest.mark.parametrize("override", [None, *OVERRIDES])
def test_files_are_valid(engine: docker.DockerClient, override: str | None) -> None:
    """Every compose command here takes the file, alone and with each override."""
    assert commands(), "neither docker compose nor docker-compose is here"
    files = ["-f", "docker-compose.yml", *(["-f", override] if override else [])]
    environment = {**os.environ, "KERNFED_PGPASSWORD": "x"}
    for command in commands():
        done = subprocess.run(
            [*command, *files, "config"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr.lower(), done.stderr


@pytest.fixture
def environment(engine: docker.DockerClient, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Settings under which `make up` disturbs nobody, and the end of what it started."""
    settings = {
        **os.environ,
        "KERNFED_TAG": TAG,
        "KERNFED_PORT": str(free_port()),
        "KERNFED_PROJECT": f"kernfed-test-{os.getpid()}",
        "KERNFED_CLUSTER": str(tmp_path / "cluster"),
    }
    yield settings
    script = "compose=$(deploy/compose/which.sh) && $compose down -v --timeout 5"
    subprocess.run(["bash", "-c", script], cwd=ROOT, env=settings, capture_output=True, timeout=120, check=True)


def test_up_and_a_job_from_the_host(
    environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From nothing: containers up, clients enrolled by token, a job of the examples submitted from the host."""
    began = time.monotonic()
    up = subprocess.run(
        ["deploy/compose/up.sh"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert up.returncode == 0, up.stdout + up.stderr
    environment = {**environment, "KERNFED_IDENTITY": environment["KERNFED_CLUSTER"] + "/operator"}

    def kernfed(*arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("kernfed")), *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    kernfed("job", "submit", "examples/heart/newton.toml", "--watch")
    took_s = time.monotonic() - began
    with capsys.disabled():
        print(f"\nfrom nothing to the first finished job: {took_s:.0f} s")
    kernfed("job", "fetch", "heart-newton", "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 0
    assert (tmp_path / "out" / "report.html").stat().st_size > 0
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert model
    assert len(json.loads(kernfed("client", "list", "--json"))) == 4
