"""What every finding of a job keeps: its JSON is that of earlier releases, is read back, and has a section."""

from __future__ import annotations

import json
from typing import Any

from kernfed.methods.finding import Finding
from kernfed.report.sections import sections


def written(finding: Finding) -> list[tuple[str, Any]]:
    """A finding's keys and values in their order, after it was read back to itself and shown in a report."""
    text = json.dumps(finding.to_json())
    assert type(finding).from_json(json.loads(text)) == finding
    assert sections()[finding.name](finding.to_json()).title
    return list(json.loads(text).items())
