"""Cross-fitted collaboration weights: golden numbers, the simplex, and what the choice must respect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.maths.triangles import pack
from kernfed.methods.personalise.choice import (
    FULL_GRID,
    LITE_GRID,
    WIDE_GRID,
    Candidate,
    Family,
    Scores,
    Turns,
    candidates,
    decide,
    default_grid,
)
from kernfed.methods.personalise.crossfit import Target, needed_errors
from kernfed.methods.personalise.crossfit_messages import CandidateGrid, StageDecision
from kernfed.methods.personalise.embeddings import embed
from kernfed.methods.personalise.mixing.shared import Shared
from kernfed_testing.methods.personalise_oracles import all_rows_models
from kernfed_testing.methods.ridge_clients import load_golden

Floats = Any
SMALL = CandidateGrid(
    widths=(0.5,), loss_widths=(0.5,), shares=(0.3, 1.0), ridges=(1e-3, 0.1), num_folds=0, clusters=(2,)
)


def targets(rows: list[tuple[Floats, Floats, Floats]], grid: CandidateGrid) -> list[Target]:
    """A target per client, from (x, y, phi)."""
    embedded = [embed(phi) for _, _, phi in rows]
    shared = Shared(
        np.array([float(len(x)) for x, _, _ in rows]),
        np.array([e.mean for e in embedded]),
        np.array([e.error for e in embedded]),
        np.array([pack(x.T @ x / len(x)) for x, _, _ in rows]),
        np.array([x.T @ y / len(x) for x, y, _ in rows]),
        np.array([np.square(y).sum(axis=1).mean() for _, y, _ in rows]),
    )
    return [Target(i, shared, *row, grid, np.ones(row[0].shape[1])) for i, row in enumerate(rows)]


def total(scores: list[Scores]) -> Scores:
    return Scores(*(sum(getattr(s, f) for s in scores) for f in ("losses", "squared_differences", "variances")))


def decisions(clients: list[Target], *, deviate: bool = True) -> list[StageDecision]:
    """All stages."""
    turns = Turns(clients[0].grid, deviate)
    while not turns.done:
        turns.add(total([client.scores(turns.decisions) for client in clients]), len(clients))
    return turns.decisions


def golden() -> tuple[dict[str, Any], list[Target]]:
    case = load_golden("personalise-default")
    w, b = np.array(case["rff_W"]), np.array(case["rff_b"])
    mean, deviation = np.array(case["pooled_mean"]), np.array(case["pooled_sd"])
    rows = []
    for n, x, y in zip(case["n"], case["X"], case["Y"], strict=True):
        columns = np.column_stack([np.array(x)[:n], np.array(y)[:n]])
        phi = np.sqrt(2 / len(b)) * np.cos((columns - mean) / deviation @ w.T + b)
        rows.append((np.array(x)[:n], np.array(y)[:n, None], phi))
    s = case["settings"]
    grid = CandidateGrid(
        widths=tuple(s["hs"]),
        loss_widths=tuple(s["h2"]),
        shares=tuple(s["us"][1:]),
        ridges=tuple(s["rhos"]),
        num_folds=s["K"],
        clusters=(),
    )
    return case, targets(rows, grid)


def test_everything_equals_an_independent_program() -> None:
    """Sums, held-out errors of every candidate, the pooled choice, weights and models, to 1e-12."""
    case, clients = golden()
    np.testing.assert_allclose(clients[0].shared.means, case["nu"], atol=1e-12)
    np.testing.assert_allclose(clients[0].shared.noise * clients[0].shared.num_rows, case["tau"], atol=1e-12)
    chosen = decisions(clients)
    listed = candidates(clients[0].grid, 2)
    names = {"gm": "pooled", "grand": "fedavg", "mmd": "embedding"}
    names |= {"lossL": "loss-local", "lossM": "loss-choice", "loss2": "loss-again"}
    want = [(names.get(f, f), h or 0.0, u, rho) for f, h, u, rho in case["cands"]]
    assert [(c.family, c.width, c.share, c.ridge) for c in listed] == want
    losses = [client.errors(chosen[:2]).mean(axis=1) for client in clients]
    np.testing.assert_allclose(losses, case["heldout_loss"], atol=1e-12)
    np.testing.assert_allclose(clients[0].errors(chosen[:2]), np.array(case["E_client0"])[:, :4], atol=1e-12)
    models = all_rows_models(clients[0], chosen[:2])[:, :, 0]
    np.testing.assert_allclose(models, case["theta_all_client0"], atol=1e-12)
    personal = [client.adopt(chosen) for client in clients]
    assert chosen[-1].pooled == case["pooled_choice"]
    assert [p.index for p in personal] == case["choice"]
    np.testing.assert_allclose([p.weights for p in personal], case["W"], atol=1e-12)
    np.testing.assert_allclose([p.coefficients[:, 0] for p in personal], case["theta"], atol=1e-12)


def shifted(num: int, rows: int, groups: int, seed: int = 0, p: int = 4) -> list[tuple[Floats, Floats, Floats]]:
    """Linear clients in groups that share their coefficients."""
    random = np.random.default_rng(seed)
    beta = random.normal(size=(groups, p))
    omega = random.normal(size=(60, p + 1)) / np.sqrt(2 * p)
    made = []
    for k in range(num):
        x = random.normal(size=(rows, p))
        y = (x @ beta[k % groups] + 0.3 * random.normal(size=rows))[:, None]
        made.append((x, y, np.sqrt(2 / 60) * np.cos(np.hstack([x, y]) @ omega.T + np.arange(60))))
    return made


def test_weights_are_on_the_simplex_and_prefer_the_own_group() -> None:
    """Two groups of opposite concepts: nearly all weight stays inside."""
    rows = shifted(8, 12, 2)
    chosen = decisions(clients := targets(rows, SMALL))
    for t, client in enumerate(clients):
        w = client.adopt(chosen).weights
        assert (w >= 0).all()
        assert w.sum() == pytest.approx(1, abs=1e-12)
        assert w[t % 2 :: 2].sum() > 0.95


def test_order_of_clients_does_not_matter() -> None:
    """Reversed clients get reversed weights."""
    rows = shifted(6, 10, 2)
    forwards, backwards = targets(rows, SMALL), targets(rows[::-1], SMALL)
    one = [client.adopt(decisions(forwards)).weights for client in forwards]
    other = [client.adopt(decisions(backwards)).weights for client in backwards]
    np.testing.assert_allclose(np.array(other)[::-1, ::-1], one, atol=1e-9)


def test_duplicated_clients_share_weight() -> None:
    """A client that is there twice gets the same weight twice."""
    rows = shifted(5, 10, 1)
    clients = targets([*rows, rows[3]], SMALL)
    w = clients[0].adopt(decisions(clients)).weights
    assert w[3] == pytest.approx(w[5], rel=1e-9)


def test_one_client_alone_has_all_weight() -> None:
    """Nobody to lean on: every candidate is the local one."""
    (client,) = targets(shifted(1, 9, 1), SMALL)
    found = client.adopt(decisions([client]))
    assert found.weights.tolist() == [1.0]


def test_fedavg_candidates_weigh_clients_by_their_rows() -> None:
    """With h = inf and u = 1 the weights are exactly n_k/n, and the model that of all rows."""
    rows = [tuple(part[:n] for part in row) for row, n in zip(shifted(4, 20, 1), (5, 9, 14, 20), strict=True)]
    client = targets(rows, SMALL)[1]
    listed = candidates(SMALL, 0)
    j = next(i for i, c in enumerate(listed) if c.family is Family.FEDAVG)
    found = client.adopt([StageDecision(pooled=j, alternatives=(), local=0)])
    np.testing.assert_allclose(found.weights, np.array([5, 9, 14, 20]) / 48, atol=1e-14)
    x, y = np.concatenate([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
    h = x.T @ x / 48
    h += listed[j].ridge * np.trace(h) / 4 * np.eye(4)
    np.testing.assert_allclose(found.coefficients, np.linalg.solve(h, x.T @ y / 48), atol=1e-12)


def test_held_out_rows_are_left_out_of_everything() -> None:
    """Of row 0 changed, the models that are tested on it know nothing: its error grows, those of its fold stay."""
    rows = shifted(4, 12, 2)
    x, y, phi = rows[0]
    moved = y.copy()
    moved[0] += 100.0
    shared = targets(rows, SMALL)[0].shared
    before = Target(0, shared, x, y, phi, SMALL, np.ones(4)).errors([])
    after = Target(0, shared, x, moved, phi, SMALL, np.ones(4)).errors([])
    np.testing.assert_array_equal(after[:, 10], before[:, 10])  # rows 0 and 10 are one of ten folds
    assert (np.abs(np.sqrt(after[:, 0]) - 100) <= np.sqrt(before[:, 0]) + 1e-9).all()
    local = [j for j, c in enumerate(candidates(SMALL, 0)) if c.family is Family.LOCAL]
    assert not np.isclose(before[local, 1], after[local, 1]).any()  # row 0 trains the models of the others


def test_copies_of_a_row_are_held_out_together() -> None:
    """The models that are tested on a row know none of its copies, wherever they stand; alone they would."""
    rows = shifted(4, 12, 2)
    x, y, phi = (np.concatenate([part, part[:3]]) for part in rows[0])
    moved = y.copy()
    moved[[0, 12]] += 100.0
    shared, unit = targets(rows, SMALL)[0].shared, np.array([*range(12), 0, 1, 2])
    for numbers, known in ((unit, False), (None, True)):
        before, after = (Target(0, shared, x, t, phi, SMALL, np.ones(4), unit=numbers).errors([]) for t in (y, moved))
        np.testing.assert_array_equal(before[:, 0] == before[:, 12], not known)
        local = [j for j, c in enumerate(candidates(SMALL, 0)) if c.family is Family.LOCAL]
        far = np.abs(np.sqrt(after[local, 0]) - 100) > np.sqrt(before[local, 0]) + 1e-9
        assert far.all() if known else not far.any()


def test_an_intercept_is_not_shrunk() -> None:
    """With an unpenalised constant column the model follows a shift of all targets exactly."""
    x, y, phi = shifted(1, 15, 1)[0]
    shared_rows = [(np.hstack([np.ones((15, 1)), x]), y, phi)]
    penalised = np.array([0.0, 1, 1, 1, 1])
    found = []
    for offset in (0.0, 50.0):
        moved = [(shared_rows[0][0], y + offset, phi)]
        client = targets(moved, SMALL)[0]
        client = Target(0, client.shared, *moved[0], SMALL, penalised)
        found.append(client.adopt([StageDecision(pooled=1, alternatives=(), local=0)]).coefficients[:, 0])
    np.testing.assert_allclose(found[1] - found[0], [50, 0, 0, 0, 0], atol=1e-9)


def test_pooled_choice_needs_more_than_chance_to_leave_fedavg() -> None:
    """A candidate that is better by less than its standard error is not taken; a clear one is."""
    listed = (
        Candidate(Family.LOCAL, 0.0, 0.0, 0.1),
        Candidate(Family.FEDAVG, 0.0, 1.0, 0.1),
    )

    def choose(gain: float, noise: float, deviate: bool = True) -> StageDecision:
        losses = np.array([[1.0 - gain + noise * s, 1.0] for s in (-1, 1, -1, 1)])
        squares = np.square(losses[:, [0, 1]] - losses[:, [1]]).sum(axis=0)[:, None]
        return decide(listed, Scores(losses.sum(axis=0), squares, np.zeros((2, 1))), 4, deviate=deviate)

    assert choose(0.1, 0.05).pooled == 0
    assert choose(0.1, 0.5) == StageDecision(pooled=1, alternatives=(0,), local=0, loss=1.0)
    assert choose(0.1, 0.5, deviate=False).alternatives == ()


def test_a_client_deviates_only_where_its_rows_show_it() -> None:
    """A target whose concept nobody shares goes its own way, the others stay."""
    rows = shifted(9, 14, 1)
    x, y, phi = rows[4]
    rows[4] = (x, -y, -phi)
    clients = targets(rows, SMALL)
    chosen = decisions(clients)
    assert clients[4].adopt(chosen).weights[4] > 0.8
    assert sum(client.adopt(chosen).weights[4] for client in clients) < 1.2


def test_many_rows_may_speak_against_the_common_choice_sooner() -> None:
    """Two standard errors up to 20 rows, towards one with more."""
    assert [needed_errors(n) for n in (3, 20, 40, 200)] == [2.0, 2.0, 1.5, 1.1]


def test_the_grid_is_smaller_where_systems_are_large() -> None:
    """525 candidates up to 64 inputs, 116 above, 87 in the lite grid; the published 405 have no clusters."""
    assert default_grid(64) == FULL_GRID
    assert default_grid(65) == WIDE_GRID
    assert [len(candidates(grid, 2)) for grid in (FULL_GRID, LITE_GRID, WIDE_GRID)] == [525, 87, 116]
    assert len(candidates(replace(FULL_GRID, clusters=()), 2)) == 405


def test_too_few_rows_are_told() -> None:
    """Two rows say nothing about candidates; such a client takes the common choice."""
    everyone = targets(shifted(9, 14, 2), SMALL)
    chosen = decisions(everyone)
    first = everyone[0]
    few = Target(0, first.shared, first.x[:2], first.y[:2], first.phi[:2], SMALL, first.penalised)
    with pytest.raises(DataError, match="at least 3 different training rows, there are 2"):
        few.scores([])
    found = few.adopt(chosen)
    assert found.index == chosen[-1].pooled
    assert found.weights.sum() == pytest.approx(1.0)


def test_clusters_find_groups_that_few_rows_hide() -> None:
    """Five rows in eight columns: alone they say nothing of a model; clustered, nearly all weight stays inside."""
    rows = shifted(24, 5, 2, seed=1, p=8)
    rows = [(x, y, np.zeros((5, 2)) + np.arange(5)[:, None]) for x, y, _ in rows]  # embeddings that tell nothing
    grid = replace(SMALL, num_folds=5)
    inside = {}
    for clusters in ((), (2,)):
        clients = targets(rows, replace(grid, clusters=clusters))
        chosen = decisions(clients)
        inside[clusters] = np.mean([client.adopt(chosen).weights[i % 2 :: 2].sum() for i, client in enumerate(clients)])
    assert inside[2,] > 0.95
    assert inside[2,] > inside[()]


def test_turns_go_on_while_they_gain_and_undo_the_last_that_does_not() -> None:
    """Three at least; then for as long as the choice's loss falls by 2 percent; a turn that raises it is undone."""

    def run(levels: list[float]) -> int:
        turns = Turns(SMALL)
        for level in levels:
            assert not turns.done
            size, fedavg = len(turns.listed), 2
            zeros = np.zeros((size, fedavg))
            turns.add(Scores(np.full(size, level), zeros, zeros), 1)
        assert turns.done
        return len(turns.decisions)

    assert run([5.0, 4.0, 3.99]) == 3
    assert run([5.0, 4.0, 3.0, 2.99]) == 4
    assert run([5.0, 4.0, 3.0, 3.01]) == 3
    assert run([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]) == 8
