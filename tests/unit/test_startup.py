"""What a service does not wait for as it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernfed_testing.limits import LIMIT_S

HEAVY = ("alembic", "matplotlib", "pandas", "prometheus_client", "pyarrow", "scipy", "sklearn", "torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "kept"),
    [
        ("kernfed_server.app, kernfed_server.commands.run", ()),
        ("kernfed_server.jobs.execute, kernfed_server.methods.registry", ("scipy",)),
        ("kernfed_client.cli, kernfed_client.app, kernfed_client.commands.run, kernfed_client.daemon.audit_report", ()),
    ],
)
def test_a_service_starts_without_the_maths(modules: str, kept: tuple[str, ...]) -> None:
    """A thread loads what jobs compute with while the service answers; workflows need scipy, and no torch."""
    code = f"import sys, {modules}\nprint('loaded:', *sorted({set(HEAVY)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.split() == ["loaded:", *kept]
