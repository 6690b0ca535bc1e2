"""Jobs in which clients find principal components, densities or centres of their own."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.methods.personalise.component_report import (
    centres_overview,
    centres_section,
    components_overview,
    components_section,
    density_overview,
    density_section,
)
from kernfed.methods.personalise.finding import CentresFinding, ComponentsFinding, DensityFinding
from kernfed_client.methods.personalise.state import personal
from kernfed_simulation.federation import Rows
from kernfed_testing.methods.personalise import NAMES, clients, finding, notes, personal_job, run

WANTED: dict[str, Any] = {"components": 1, "view": "x", "embedding_kernel": "polynomial2"}
FREQUENCIES = 500
DENSITY: dict[str, Any] = {
    "density": True,
    "view": "x",
    "lengthscales": [0.8],
    "num_frequencies": FREQUENCIES,
    "weights": "paper",
}


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
    told = ComponentsFinding.from_json(found[-1] or {})
    assert [c.client for c in told.clients] == sorted(NAMES)
    for c in told.clients:
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
        np.mean([getattr(c, name) for c in told.clients]) for name in ("personal", "local", "pooled")
    )
    assert personal < 0.8 * pooled
    assert personal < 1.05 * local
    assert "personal components, 1 each, leave" in notes(done)
    table = components_section(told).table
    assert table is not None
    assert table == components_overview(told).table
    assert len(table.rows) == 6


def test_more_components_than_columns_are_refused(tmp_path: Path) -> None:
    """The error says how many columns there are; an embedding that cannot tell components is refused with the job."""
    with pytest.raises(ConfigError, match=r"components is 4, and the data have 3 feature columns"):
        run(personal_job(**{**WANTED, "components": 4}), clients(kinds(), tmp_path))
    with pytest.raises(ConfigError, match="components"):
        personal_job(components=1, view="x")


def two_places(size: int = 8) -> dict[str, Rows]:
    """Six clients of two kinds, whose columns lie in different places."""
    random, rows = np.random.default_rng(3), {}
    for i, name in enumerate(NAMES):
        x = np.array([2.0, 5.0, 1.0]) + (-1.0) ** i * np.array([3.0, 0.0, 0.0]) + random.normal(size=(size + 20, 3))
        y = x[:, 0] + 0.1 * random.normal(size=len(x))
        rows[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def test_densities_are_kept_told_and_better_than_those_of_own_rows(tmp_path: Path) -> None:
    """The file is a kernel density estimate, to the error of its cosines; of few rows alone and of all it is worse."""
    rows = two_places()
    jobs = clients(rows, tmp_path)
    done = run(personal_job(**DENSITY), jobs)
    told = [e.event.finding for e in done.events if e.event.message == DensityFinding.name]
    found = DensityFinding.from_json(told[-1] or {})
    assert [c.client for c in found.clients] == sorted(NAMES)
    mixed, local, pooled = (
        np.mean([getattr(c, name) for c in found.clients]) for name in ("personal", "local", "pooled")
    )
    assert mixed < min(local, pooled)
    assert "personal densities are at a mean squared distance of" in notes(done)
    assert finding(done)["weights"] == "paper"
    table = density_section(found).table
    assert table is not None
    assert table == density_overview(found).table
    assert len(table.rows) == 6

    lines = {line[0]: line[1:] for line in csv.reader((tmp_path / "ant" / "density.csv").read_text().splitlines())}
    assert lines.pop("row") == ["factor", "phase", "x0", "x1", "x2"]
    mean, scale = (np.array(lines.pop(row)[2:], dtype=float) for row in ("mean", "scale"))
    peak = np.exp(float(lines.pop("log_peak")[0]))
    assert peak == pytest.approx(1.0 / ((2 * np.pi) ** 1.5 * np.prod(0.8 * scale)))
    factor, phase, *frequencies = np.array(list(lines.values()), dtype=float).T
    x = rows["ant"].x_test
    at = np.cos((x - mean) / scale @ np.array(frequencies) + phase) @ factor
    means = np.array(personal(jobs["ant"]).needed_shared().means, dtype=np.float64)
    weights = np.linalg.lstsq(means.T, factor / np.sqrt(2.0 / FREQUENCIES), rcond=None)[0]
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)
    estimate = np.zeros(len(x))
    for weight, client in zip(weights, sorted(rows), strict=True):
        apart = (x[:, None] - rows[client].x_train[None]) / (0.8 * scale)
        estimate += weight * np.exp(-0.5 * np.square(apart).sum(axis=2)).mean(axis=1)
    # A product of two features has the mean k and a mean square of at most 3/2: two deviations of their mean.
    assert np.sqrt(np.square(at - estimate).mean()) < 2.0 * np.sqrt(1.5 / FREQUENCIES)
    assert estimate.mean() > 0.15


@pytest.mark.parametrize("key", ["density", "centres"])
def test_densities_and_centres_need_an_embedding_that_is_one(key: str) -> None:
    """Embeddings of targets, or by another kernel, are refused with the job."""
    for other in ({"view": "xy"}, {"embedding_kernel": "laplace"}):
        with pytest.raises(ConfigError, match=key):
            personal_job(**{**DENSITY, "density": False, key: 1, **other})


def three_places(size: int = 12) -> dict[str, Rows]:
    """Six clients of two kinds, whose rows lie around three places each, in the first two columns."""
    random, rows = np.random.default_rng(21), {}
    for i, name in enumerate(NAMES):
        places = np.array([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [0.0, 3.0 - 6.0 * (i % 2), 0.0]])
        x = places[np.arange(size + 60) % 3] + random.normal(size=(size + 60, 3)) + [5.0, -2.0, 100.0]
        y = x[:, 0] + 0.1 * random.normal(size=len(x))
        rows[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def test_centres_are_kept_told_and_better_than_those_of_all_rows(tmp_path: Path) -> None:
    """The file is in the units of the data; clients whose third place lies elsewhere do no harm."""
    rows = three_places()
    done = run(personal_job(centres=3, view="x", weights="paper", num_frequencies=100), clients(rows, tmp_path))
    told = [e.event.finding for e in done.events if e.event.message == CentresFinding.name]
    found = CentresFinding.from_json(told[-1] or {})
    assert [c.client for c in found.clients] == sorted(NAMES)
    for c in found.clients:
        assert c.personal is not None
        lines = list(csv.reader((tmp_path / c.client / "centres.csv").read_text().splitlines()))
        assert lines[0] == ["row", "share", "x0", "x1", "x2"]
        assert lines[1][:2] == ["scale", ""]
        scale, centres = np.array(lines[1][2:], dtype=float), np.array([line[2:] for line in lines[2:]], dtype=float)
        assert sum(float(line[1]) for line in lines[2:]) == pytest.approx(1.0)
        test = rows[c.client].x_test
        apart = np.square((test[:, None] - centres[None]) / scale).sum(axis=2).min(axis=1).sum()
        assert c.personal == pytest.approx(apart / np.square((test - test.mean(axis=0)) / scale).sum(), abs=1e-5)
    personal, local, pooled = (
        np.mean([getattr(c, name) for c in found.clients]) for name in ("personal", "local", "pooled")
    )
    assert personal < 0.95 * pooled
    assert personal < 1.05 * local
    assert "personal centres, 3 each, leave" in notes(done)
    table = centres_section(found).table
    assert table is not None
    assert table == centres_overview(found).table
    assert len(table.rows) == 6
