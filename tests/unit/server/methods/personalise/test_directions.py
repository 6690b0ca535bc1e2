"""Fewer inputs for many features: their leading directions, and clusters that are found once for everyone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.messages.base import Stated
from kernfed.jobs.job_file import JobFile
from kernfed.maths.triangles import pack, packed_size
from kernfed.methods.personalise.clusters import cluster_models
from kernfed.methods.personalise.messages import Factor, Statistics
from kernfed_server.methods.personalise.directions import (
    CLUSTERED_ONCE_FROM,
    cluster_once,
    leading_directions,
    pool_factors,
)
from kernfed_simulation.run import Simulated
from kernfed_testing.in_process import make_job
from kernfed_testing.methods.personalise import clients, concept_rows, run


def factor_of(x: np.ndarray, y: np.ndarray) -> Factor:
    """What a client sends of its rows."""
    n = len(x)
    return Factor(num_rows=n, factor=np.linalg.qr(x, mode="r") / np.sqrt(n), moment=x.T @ y / n)


def test_factors_pool_to_the_second_moments_of_all_rows() -> None:
    """Clients of fewer and of more rows than inputs: what is pooled is X'X/n of everyone."""
    random = np.random.default_rng(1)
    parts = [(random.normal(size=(n, 6)), random.normal(size=(n, 2))) for n in (3, 20, 6)]
    replies = {name: factor_of(x, y) for name, (x, y) in zip("abc", parts, strict=True)}
    assert replies["a"].factor.shape == (3, 6)
    pooled = pool_factors(replies)
    x, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    np.testing.assert_allclose(pooled.gram, x.T @ x / 29, atol=1e-13)
    np.testing.assert_allclose(pooled.moment, x.T @ y / 29, atol=1e-13)


def test_a_factor_has_no_more_rows_than_its_client() -> None:
    """Seven rows of a factor cannot come from three rows of data."""
    reply = Factor(num_rows=3, factor=np.ones((7, 9)), moment=np.ones((9, 1)))
    assert list(reply.contradictions(Stated())) == ["a factor of 7 rows for 3 rows of data"]


def test_directions_hold_what_the_features_share() -> None:
    """Features of rank 5 have five directions; a limit takes the largest ones."""
    random = np.random.default_rng(2)
    x = random.normal(size=(50, 5)) @ random.normal(size=(5, 30))
    gram = x.T @ x / 50
    basis, held = leading_directions(gram, None)
    assert basis.shape[1] <= 5
    assert held > 0.999
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    five, _ = leading_directions(gram, 5)
    np.testing.assert_allclose(five @ (five.T @ gram @ five) @ five.T, gram, atol=1e-10 * np.abs(gram).max())
    assert leading_directions(gram, 2)[0].shape == (30, 2)


def job_of(**settings: Any) -> JobFile:
    """A job on eighty random features."""
    return make_job("personalise", frequencies=80, features="lengthscale = 4.0", num_frequencies=60, **settings)


def errors(done: Simulated) -> dict[str, float]:
    """Mean squared error of each client's personal model."""
    return {client: found["personal"]["mse"] for client, found in done.final.clients.items()}


@pytest.mark.parametrize(
    "settings", [{"grid": "lite", "folds": 2}, {"weights": "paper"}, {"weights": "exact"}], ids=lambda s: str(s)
)
def test_models_in_leading_directions_are_as_good(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Twenty directions of eighty features: errors stay with every way to find weights, and the job says it."""
    rows = concept_rows()
    few = run(job_of(directions=20, **settings), clients(rows, tmp_path / "few"))
    full = run(job_of(directions="all", **settings), clients(rows, tmp_path / "all"))
    assert np.mean(list(errors(few).values())) == pytest.approx(np.mean(list(errors(full).values())), rel=0.03)
    said = "ridge models lie in the 20 leading directions of 80 features, which hold "
    assert any(event.event.message.startswith(said) for event in few.events)
    assert not any("leading directions" in event.event.message for event in full.events)
    for client, found in full.final.clients.items():  # the federated model still has every feature
        assert few.final.clients[client]["global"]["mse"] == pytest.approx(found["global"]["mse"], rel=1e-9)


def test_many_clients_are_clustered_once_and_leave_themselves_out() -> None:
    """Two groups of clients are found; the models that a client then makes have none of its rows."""
    random = np.random.default_rng(3)
    beta = random.normal(size=(2, 4, 1))
    stated = []
    for i in range(CLUSTERED_ONCE_FROM):
        x = random.normal(size=(12, 4))
        y = x @ beta[i % 2]
        stated.append(
            Statistics(num_rows=12, gram=pack(x.T @ x / 12), moment=x.T @ y / 12, square=float(np.square(y).mean()))
        )
    assert cluster_once(stated[:-1], (2,), 0, 1.0) == ()
    (found,) = cluster_once(stated, (2,), 0, 1.0)
    assert (found.labels == found.labels[0]).sum() == CLUSTERED_ONCE_FROM // 2
    assert (found.labels[::2] == found.labels[0]).all()
    rows = np.full(len(stated), 12.0)
    rows[0] = 0.0
    grams, moments = np.array([s.gram for s in stated]), np.array([s.moment for s in stated])
    assert grams.shape[1] == packed_size(4)
    models = cluster_models(rows, grams, moments, np.ones(4), 2, found.labels.astype(np.intp))
    moments[0] = 1e6  # of no weight
    again = cluster_models(rows, grams, moments, np.ones(4), 2, found.labels.astype(np.intp))
    np.testing.assert_array_equal(models, again)
