"""The table of steps and the requests that the daemon offers before the table is loaded."""

from __future__ import annotations

import subprocess
import sys

from kernfed.federation.messages.catalogue import request_classes
from kernfed_client.steps.registry import STEPS


def test_every_request_has_a_step() -> None:
    """What the daemon says it answers, known from the messages alone, is what the table answers."""
    assert {request.step for request in request_classes()} == {request.step for request in STEPS}


def test_commands_and_the_start_of_the_daemon_load_no_torch() -> None:
    """Only the worker of a running daemon, and commands that predict, load torch."""
    code = (
        "import sys, kernfed_client.cli, kernfed_client.app, kernfed_client.check_data, kernfed_client.enrol, "
        "kernfed_client.daemon.audit_report; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
