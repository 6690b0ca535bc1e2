"""What a service does not wait for as it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernfed_testing.limits import LIMIT_S

HEAVY = {"alembic", "matplotlib", "pandas", "prometheus_client", "pyarrow", "rich", "scipy", "sklearn", "starlette"}
HEAVY |= {"torch", "uvicorn"}
LOADED = f"""
import re, sys
rooms = [m for m in sys.modules if re.match(r"kernfed\\w*[.]methods[.]\\w+[.](?!index$)", m)]
print("loaded:", *sorted({HEAVY} & set(sys.modules)), *sorted(rooms))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "modules", "kept"),
    [
        ("kernfed_server.commands.run:run", "kernfed_server.jobs.execute, kernfed_server.methods.registry", ()),
        ("kernfed_client.commands.run:run", "kernfed_client.cli", ()),
        ("kernfed_client.commands.run:run", "kernfed_client.daemon.audit_report", ("rich",)),
    ],
)
def test_a_service_starts_without_maths_and_without_rooms(command: str, modules: str, kept: tuple[str, ...]) -> None:
    """What jobs compute with is loaded while the service answers, and a method's room when a job names the method."""
    code = f"from kernfed.cli.later import load_command\nload_command({command!r})\nimport {modules}{LOADED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.split() == ["loaded:", *kept]


@pytest.mark.slow
def test_a_job_loads_the_room_of_its_method_alone() -> None:
    """The rest of the rooms stays where it is."""
    job = 'name = "p"\n[method]\nname = "probe"\n'
    code = f"from kernfed.jobs.job_file import parse_job\nparse_job({job!r})\n{LOADED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    rooms = [word for word in done.stdout.split() if word.startswith("kernfed")]
    assert rooms == [f"kernfed.methods.probe.{module}" for module in ("messages", "method", "settings")]
