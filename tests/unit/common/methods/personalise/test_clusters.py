"""Clusters of clients from their normal equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernfed.maths.triangles import pack
from kernfed.methods.personalise.clusters import RIDGE, ClusterSums, client_losses, cluster, cluster_models


def sums(num: int, rows: int, groups: int, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Of linear clients; every `groups`-th shares its coefficients."""
    random = np.random.default_rng(seed)
    beta = random.normal(size=(groups, 4, 2))
    made = []
    for k in range(num):
        x = random.normal(size=(rows, 4))
        y = x @ beta[k % groups] + 0.2 * random.normal(size=(rows, 2))
        made.append((pack(x.T @ x / rows), x.T @ y / rows, np.square(y).sum() / rows))
    grams, moments, squares = (np.array(part) for part in zip(*made, strict=True))
    return np.full(num, float(rows)), grams, moments, squares


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_are_found(groups: int) -> None:
    """Clients of fewer rows than columns are put together with all others of their group, and with nobody else."""
    labels = cluster(*sums(30, 3, groups), np.ones(4), groups).labels
    assert all(len(set(labels[g::groups])) == 1 for g in range(groups))
    assert len(set(labels)) == groups


def test_order_of_clients_does_not_matter() -> None:
    """Clients that come in another order are put together alike."""
    num_rows, grams, moments, squares = sums(15, 4, 3, seed=2)
    order = np.random.default_rng(0).permutation(15)
    one = cluster(num_rows, grams, moments, squares, np.ones(4), 3).labels[order]
    other = cluster(num_rows[order], grams[order], moments[order], squares[order], np.ones(4), 3).labels
    assert ((one[:, None] == one) == (other[:, None] == other)).all()


def test_one_cluster_has_the_ridge_model_of_all_rows() -> None:
    """Weighted by rows, the unpenalised column left out of the ridge; empty clusters hold the same model."""
    num_rows, grams, moments, squares = sums(3, 5, 1)
    num_rows = np.array([1.0, 2.0, 5.0])
    penalised = np.array([0.0, 1.0, 1.0, 1.0])
    found = cluster(num_rows, grams, moments, squares, penalised, 1)
    share = num_rows / num_rows.sum()
    gram = np.zeros((4, 4))
    gram[np.triu_indices(4)] = share @ grams
    gram = gram + np.triu(gram, 1).T
    left = gram + RIDGE * gram.diagonal()[1:].mean() * np.diag(penalised)
    np.testing.assert_allclose(found.models[0], np.linalg.solve(left, np.tensordot(share, moments, 1)), atol=1e-12)
    many = cluster(num_rows[:1], grams[:1], moments[:1], squares[:1], penalised, 3)
    np.testing.assert_allclose(many.models[1], many.models[0])


def test_losses_from_sums_are_those_of_the_rows() -> None:
    """The mean squared error of a model, from X'X/n, X'Y/n and the mean of |y|²."""
    random = np.random.default_rng(3)
    x, theta = random.normal(size=(7, 4)), random.normal(size=(4, 2))
    y = random.normal(size=(7, 2))
    found = client_losses(
        pack(x.T @ x / 7)[None], (x.T @ y / 7)[None], np.array([np.square(y).sum() / 7]), theta[None]
    )[0]
    assert found[0] == pytest.approx(np.square(y - x @ theta).sum() / 7)


def test_models_without_one_client_are_those_of_the_others() -> None:
    """Also where its numbers are huge, which a difference of sums would not survive, or its cluster is empty then."""
    num_rows, grams, moments, _ = sums(23, 6, 2)
    labels = np.array([2] + [0, 1] * 11)
    num_rows[5], grams[5], moments[5] = 9.0, 1e60 * grams[5], 1e60 * moments[5]
    kept = ClusterSums(num_rows, grams, moments, labels, 4)
    for client in (0, 5, 22):
        others = np.where(np.arange(23) == client, 0.0, num_rows)
        want = cluster_models(others, grams, moments, np.ones(4), 4, labels)
        np.testing.assert_allclose(kept.models_without(client, np.ones(4), RIDGE), want, rtol=1e-9)
