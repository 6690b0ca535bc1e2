"""Numbers of a gradient that stand for few rows: which they are, in networks of a coordinator's own making."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from kernfed.federation.messages.data import LearningTask
from kernfed.models.network_spec import NetworkKind, NetworkSpec, initial_parameters, layout, make_network_spec
from kernfed.tensors.networks import gradients, train
from kernfed.tensors.rows_behind import RowsBehind, sure_rows

REGRESSION, BINARY, CLASSES = LearningTask.REGRESSION, LearningTask.BINARY, LearningTask.CLASSIFICATION
LEAST = 10
DRAW = np.random.default_rng(3)
X = torch.tensor(DRAW.normal(size=(80, 3)))
Y = torch.tensor(DRAW.normal(size=(80, 1)))
ORDER = torch.argsort(X[:, 0], descending=True)


def parts(spec: NetworkSpec, numbers: Tensor) -> list[Tensor]:
    """The arrays of one network's parameters or gradient, in their order; changes in them are changes in `numbers`."""
    return list(torch.split(numbers, [size for layer in layout(spec) for size in layer.sizes]))


def network(*widths: int, task: LearningTask = REGRESSION, outputs: int = 1) -> tuple[NetworkSpec, Tensor]:
    spec = make_network_spec(NetworkKind.MLP, task, 3, outputs, widths)
    return spec, torch.tensor(initial_parameters(spec, 1))


def above(rows: int) -> float:
    """A threshold of the first column with so many rows above it."""
    return float(X[ORDER[rows - 1 : rows + 1], 0].mean())


def gradient(spec: NetworkSpec, parameters: Tensor, least: int, x: Tensor = X, y: Tensor = Y) -> list[Tensor]:
    return parts(spec, gradients(spec, parameters[None], x, y, None, RowsBehind(least))[0])


@pytest.mark.parametrize(("rows", "told"), [(1, False), (9, False), (12, True)])
def test_a_unit_that_rows_set_off(rows: int, told: bool) -> None:
    """A unit on one row tells this row by a quotient of two numbers; on ten or more it tells of none alone."""
    spec, p = network(4)
    first, offset, *_ = parts(spec, p)
    first[:3], offset[0] = torch.tensor([1.0, 0.0, 0.0]), -above(rows)
    open_weights, open_offset, *_ = gradient(spec, p, 1)
    held_weights, held_offset, last, _ = gradient(spec, p, LEAST)
    if rows == 1:
        torch.testing.assert_close(open_weights[:3] / open_offset[0], X[ORDER[0]])
    assert bool((held_weights[:3] != 0).any()) is told
    assert bool(held_offset[0] != 0) is told
    assert rows > 9 or last[0] == 0
    torch.testing.assert_close(held_weights[3:], open_weights[3:])  # other units move as ever


def test_a_row_that_two_units_share() -> None:
    """Two units with many rows each, and one row in common: the weight between them tells it, and is kept."""
    spec, p = network(2, 2)
    w1, b1, w2, b2, w3, _ = parts(spec, p)
    w1[:], w2[:], w3[:] = 0.0, 0.0, 1.0
    w1[0], b1[0] = 1.0, -above(40)  # on rows from the middle up
    w1[3], b1[1] = -1.0, above(39) + 1e-9  # on rows from the middle down, and the one above
    b1[1] = float(X[ORDER[39], 0]) + 1e-9
    w2[0], b2[0] = 1.0, 0.0  # passes on the first
    assert int(((X @ w1[:3] + b1[0] > 0) & (X @ w1[3:] + b1[1] > 0)).sum()) == 1
    assert gradient(spec, p, 1)[2][1] != 0
    held = gradient(spec, p, LEAST)[2]
    assert held[1] == 0
    assert held[0] != 0


def test_one_row_outweighs_all_others() -> None:
    """A unit that all rows set off a little, and one row a thousand times as much, tells this row."""
    spec, p = network(2, 1)
    w1, b1, w2, b2, w3, _ = parts(spec, p)
    w1[:], w2[:], w3[:] = 0.0, torch.tensor([1e6, 1e-3]), 1.0
    w1[0], b1[0] = 1.0, -above(1)
    w1[3], b1[1] = 1.0, 10.0
    b2[:] = 0.0
    assert gradient(spec, p, 1, y=Y * 0)[4] != 0
    assert gradient(spec, p, LEAST, y=Y * 0)[4] == 0


def test_certain_predictions() -> None:
    """Where most rows are certain of their class, sums stand for the few that are not: all of the network is kept."""
    y = (Y > 0).double()
    spec, p = network(4, task=BINARY)
    assert bool((gradients(spec, p[None], X, y, None, RowsBehind(LEAST)) != 0).any())
    assert not bool((gradients(spec, 1e4 * p[None], X, y, None, RowsBehind(LEAST)) != 0).any())
    assert sure_rows(torch.tensor([[25.0], [-30.0], [0.1]]))
    assert not sure_rows(torch.tensor([[25.0, 0.0], [5.0, 0.0], [0.1, 0.0]]))


def test_sizes_beyond_the_range_of_numbers() -> None:
    """Weights whose squares overflow, or vanish, hide nobody: behind such numbers no row stands."""
    for factor in (1e-200, 1e160):
        spec, p = network(2, 2)
        w1, b1, w2, _, w3, _ = parts(spec, p)
        w1[0:3], b1[0], w2[0] = torch.tensor([factor, 0.0, 0.0]), -factor * above(1), 1.0
        w3[:] = 1.0
        held = gradient(spec, p, LEAST)
        assert held[0][0] == 0
        assert held[2][0] == 0


@pytest.mark.parametrize(
    "spec",
    [
        make_network_spec(NetworkKind.LINEAR, REGRESSION, 3, 1),
        make_network_spec(NetworkKind.MLP, CLASSES, 3, 3, (8,)),
        make_network_spec(NetworkKind.MLP, CLASSES, 3, 3, (8, 6), batch_norm=True),
        make_network_spec(NetworkKind.MLP, REGRESSION, 3, 1, (8, 6)),
    ],
)
def test_first_networks_move(spec: NetworkSpec) -> None:
    """As drawn to begin with, nearly all parameters have enough rows; those that move are moved as without a rule."""
    p = torch.tensor(initial_parameters(spec, 1))[None].repeat(2, 1)
    y = torch.eye(3, dtype=torch.float64)[torch.arange(80) % 3] if spec.num_outputs == 3 else Y
    plain, held = (gradients(spec, p, X, y, None, RowsBehind(least)) for least in (1, LEAST))
    moved = held != 0
    assert bool((plain[moved] == held[moved]).all())
    assert float(moved.double().mean()) > 0.8 * float((plain != 0).double().mean())


def test_channels_of_one_image() -> None:
    """A filter that one image alone sets off is kept, and filters that many do are not."""
    spec = make_network_spec(NetworkKind.CNN, BINARY, 144, 1, (2, 2, 4), (1, 12, 12))
    p = torch.tensor(initial_parameters(spec, 1)).float()
    filters, offsets = parts(spec, p)[:2]
    filters[:25], offsets[0] = 1.0, -20.0
    x = torch.rand(60, 144, generator=torch.Generator().manual_seed(1)) * 0.5
    x[7] = 2.0
    y = (torch.arange(60)[:, None] % 2).float()
    assert bool((gradient(spec, p, 1, x, y)[0][:25] != 0).any())
    held = gradient(spec, p, LEAST, x, y)[0]
    assert not bool((held[:25] != 0).any())
    assert bool((held[25:] != 0).any())


def test_small_batches_still_train() -> None:
    """In a batch of ten rows two of a size are enough, or nothing would ever move; what did not move is counted."""
    spec, p = network(16)
    behind = RowsBehind(LEAST)
    trained = train(spec, p[None], X, Y, learning_rate=0.05, num_steps=40, batch_size=10, behind=behind)[0]
    assert float((trained != p).double().mean()) > 0.9
    assert 0 < behind.share < 0.2
    assert behind.num == 40 * spec.num_parameters
