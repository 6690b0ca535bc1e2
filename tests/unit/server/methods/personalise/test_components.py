"""Jobs in which clients find principal components of their own."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.methods.personalise.component_report import components_overview, components_section
from kernfed.methods.personalise.finding import ComponentsFinding
from kernfed_simulation.federation import Rows
from kernfed_testing.methods.personalise import NAMES, clients, notes, personal_job, run

WANTED: dict[str, Any] = {"components": 1, "view": "x", "embedding_kernel": "polynomial2"}


def kinds(size: int = 12) -> dict[str, Rows]:
    """Six clients of two kinds: columns x0 and x1 vary together, or against each other."""
    random, rows = np.random.default_rng(12), {}
    for i, name in enumerate(NAMES):
        along = random.normal(size=(size + 40, 1)) * 2.0
        x = np.hstack([along, along * (1 - 2 * (i % 2)), 0 * along]) + 0.5 * random.normal(size=(size + 40, 3)) + 10.0
        y = x[:, 0] + 0.1 * random.normal(size=len(x))
        rows[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def test_components_are_kept_told_and_better_than_those_of_all_rows(tmp_path: Path) -> None:
    """They are told beside those of own rows alone and of all rows alike; the file is in the units of the data."""
    rows = kinds()
    done = run(personal_job(**WANTED), clients(rows, tmp_path))
    found = [e.event.finding for e in done.events if e.event.message == ComponentsFinding.name]
    finding = ComponentsFinding.from_json(found[-1] or {})
    assert [c.client for c in finding.clients] == sorted(NAMES)
    for c in finding.clients:
        assert c.personal is not None
        assert c.local is not None
        assert c.pooled is not None
        lines = {
            line[0]: line for line in csv.reader((tmp_path / c.client / "components.csv").read_text().splitlines())
        }
        assert lines["row"] == ["row", "variance", "x0", "x1", "x2"]
        mean, scale, direction = (np.array(lines[row][2:], dtype=float) for row in ("mean", "scale", "1"))
        u = (rows[c.client].x_test - mean) / scale
        left = np.square(u - np.outer(u @ direction, direction)).sum() / np.square(u - u.mean(axis=0)).sum()
        assert c.personal == pytest.approx(left, abs=1e-5)
    personal, local, pooled = (
        np.mean([getattr(c, name) for c in finding.clients]) for name in ("personal", "local", "pooled")
    )
    assert personal < 0.8 * pooled
    assert personal < 1.05 * local
    assert "personal components, 1 each, leave" in notes(done)
    table = components_section(finding).table
    assert table is not None
    assert table == components_overview(finding).table
    assert len(table.rows) == 6


def test_more_components_than_columns_are_refused(tmp_path: Path) -> None:
    """The error says how many columns there are; an embedding that cannot tell components is refused with the job."""
    with pytest.raises(ConfigError, match=r"components is 4, and the data have 3 feature columns"):
        run(personal_job(**{**WANTED, "components": 4}), clients(kinds(), tmp_path))
    with pytest.raises(ConfigError, match="components"):
        personal_job(components=1, view="x")
