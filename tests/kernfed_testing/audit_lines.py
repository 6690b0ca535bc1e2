"""An audit log's refusals, as a daemon writes them, and the lines of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernfed_client.daemon.audit import AuditLog


def refuse(log: AuditLog, message: str = "policy.methods", job: str = "j1", submission: str | None = None) -> None:
    log.refused(
        job_id=job,
        task_id="t",
        step="fedavg.local_update",
        operator="ann",
        submission=submission,
        method="dkrr",
        request_sha256=b"\xab" * 32,
        reason="REFUSED_BY_POLICY",
        message=message,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
