"""Modules of one's own: their gradients are torch's, and numbers behind which few rows stand are kept back."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kernfed import rng
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.batches import batches
from kernfed.models.network_spec import (
    NetworkKind,
    NetworkSpec,
    PartRole,
    decayed_entries,
    make_network_spec,
    norm_entries,
    own_network_spec,
)
from kernfed.tensors.modules import fingerprint_of_rest, module_outputs, parts_of, seeded, to_vector
from kernfed.tensors.networks import gradients, outputs, train
from kernfed.tensors.rows_behind import RowsBehind
from kernfed_testing.modules import Dense, Normed, Stubborn

REGRESSION, CLASSES = LearningTask.REGRESSION, LearningTask.CLASSIFICATION


def spec_of(module: nn.Module, task: LearningTask = REGRESSION, num_outputs: int = 1) -> NetworkSpec:
    return own_network_spec("net", task, 3, num_outputs, parts_of(module))


def made(kind: type[nn.Module], num_outputs: int = 1) -> nn.Module:
    with seeded(3):
        module: nn.Module = kind(3, num_outputs)
    return module


def rows(num: int = 40, num_outputs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(5)
    x = torch.tensor(random.normal(size=(num, 3)))
    if num_outputs > 1:
        return x, torch.eye(num_outputs, dtype=torch.float64)[torch.tensor(random.integers(0, num_outputs, num))]
    return x, x.sin().sum(dim=1, keepdim=True)


@pytest.mark.parametrize("task", [REGRESSION, CLASSES])
def test_a_module_like_our_own_network_trains_like_it(task: LearningTask) -> None:
    """Outputs, gradients and steps of two networks at once are those of kernfed's mlp, weights and decay included."""
    num = 1 if task is REGRESSION else 3
    module, (x, y) = made(Dense, num), rows(num_outputs=num)
    own, built = spec_of(module, task, num), make_network_spec(NetworkKind.MLP, task, 3, num, (6,))
    p = torch.stack([to_vector(module, own.parts), 0.5 * to_vector(module, own.parts)])
    w = torch.tensor(np.random.default_rng(1).random((2, 40)))
    torch.testing.assert_close(module_outputs(module, own, p, x), outputs(built, p, x))
    torch.testing.assert_close(gradients(own, p, x, y, w, module=module), gradients(built, p, x, y, w))
    assert (decayed_entries(own) == decayed_entries(built)).all()
    for spec, given in ((own, module), (built, None)):
        moved = train(
            spec, p, x, y, learning_rate=0.1, num_steps=7, batch_size=16, weight_decay=0.1, seed=4, weights=w,
            proximal=0.3, module=given,
        )  # fmt: skip
        if given is not None:
            first = moved
    torch.testing.assert_close(first, moved)


def test_steps_of_a_normalised_module_are_those_of_plain_torch() -> None:
    """Parameters and moving means are what torch's SGD makes of the module itself; counters stay as they were made."""
    module, (x, y) = made(Normed), rows()
    spec = spec_of(module)
    by_role = {role: [part.name for part in spec.parts if part.role is role] for role in PartRole}
    assert by_role[PartRole.NORM] == ["norm.weight", "norm.bias"]
    assert by_role[PartRole.BUFFER] == ["norm.running_mean", "norm.running_var"]
    assert norm_entries(spec)[0].sum() == 24
    assert norm_entries(spec)[1].sum() == 12
    assert not decayed_entries(spec)[norm_entries(spec)[0]].any()
    start = to_vector(module, spec.parts)[None]
    found = train(spec, start, x, y, learning_rate=0.1, num_steps=6, batch_size=10, seed=4, module=module)
    twin = copy.deepcopy(module)
    assert int(twin.get_buffer("norm.num_batches_tracked")) == 0
    twin.train()
    sgd = torch.optim.SGD(twin.parameters(), lr=0.1)
    drawn = batches(rng.stream(4, "networks", "batches"), 40, 10, None)
    for _ in range(6):
        taken = torch.from_numpy(next(drawn))
        sgd.zero_grad()
        (twin(x[taken]) - y[taken]).square().sum(dim=1).mean().backward()
        sgd.step()
    torch.testing.assert_close(found[0], to_vector(twin, spec.parts), rtol=1e-10, atol=1e-12)
    other = made(Normed)
    other.get_buffer("drawn").zero_()
    assert fingerprint_of_rest(other) != fingerprint_of_rest(module)


@pytest.mark.parametrize("kind", [Dense, Normed, Stubborn])
def test_numbers_behind_which_few_rows_stand_do_not_leave(kind: type[nn.Module]) -> None:
    """A unit that two rows set off tells nothing; the others do, and no guard changes a number that is told."""
    module, (x, y) = made(kind), rows()
    x[:2, 0] = torch.tensor([3.5, 3.6])
    spec = spec_of(module)
    p = to_vector(module, spec.parts)[None].clone()
    p[0, :3], p[0, 18] = torch.tensor([1.0, 0.0, 0.0]), -3.0  # unit 0: set off by a first column above 3
    if kind is Normed:
        p[0, 18], bias = 0.0, [part.name for part in spec.parts].index("norm.bias")
        p[0, sum(part.size for part in spec.parts[:bias])] = -2.0
    open_, behind = gradients(spec, p, x, y, module=module), RowsBehind(10)
    told = gradients(spec, p, x, y, None, behind, module)
    assert open_[0, :3].abs().min() > 0
    assert open_[0, 18] != 0 or kind is Normed  # a mean takes its bias away
    assert (told[0, [0, 1, 2, 18]] == 0).all()
    kept = told != 0
    assert kept[0, 3:18].double().mean() > 0.5
    assert (told[kept] == open_[kept]).all()
    assert 0 < behind.share < 0.6


def test_a_module_that_is_sure_of_its_classes_tells_nothing() -> None:
    """Where most rows are predicted with certainty, residuals are those of few."""
    module, (x, y) = made(Dense, 3), rows(num_outputs=3)
    spec = spec_of(module, CLASSES, 3)
    p = to_vector(module, spec.parts)[None].clone()
    assert gradients(spec, p, x, y, None, RowsBehind(5), module).abs().max() > 0
    p[0, -3] = 40.0
    assert not gradients(spec, p, x, y, None, RowsBehind(5), module).any()


class Wayward(Dense):
    """Raises what no library would, or gives something else, once it trains."""

    how = "raise"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (n, C) in prediction."""
        if self.training and self.how == "raise":
            raise KeyError("mood")
        return super().forward(x)[:, 0] if self.training else super().forward(x)


def test_a_row_alone_is_no_batch_of_a_normalised_module() -> None:
    """Of 41 rows in batches of 20 the last row goes with the batch before; a batch of one row is told of."""
    module, (x, y) = made(Normed), rows(41)
    spec = spec_of(module)
    p = to_vector(module, spec.parts)[None]
    steps: dict[str, Any] = {"learning_rate": 0.1, "num_steps": 3, "weight_decay": 0.0, "seed": 1, "module": module}
    assert train(spec, p, x, y, batch_size=20, **steps).isfinite().all()
    with pytest.raises(ConfigError, match=r"network 'net' cannot take a batch of 1 rows in training: ValueError: Exp"):
        train(spec, p, x, y, batch_size=1, **steps)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raise", r"cannot take a batch of 40 rows in training: KeyError: 'mood'; correct the module"),
        ("flat", r"gives \(40,\) for 40 rows in training, want \(40, 1\); correct the module"),
    ],
)
def test_what_a_module_does_in_training_alone_is_told_of(how: str, told: str) -> None:
    """Its own code may raise what it likes: one sentence names the network and what it raised or gave."""
    module, (x, y) = made(Wayward), rows()
    module.how = how  # type: ignore[assignment]  # nn.Module takes it for a tensor
    spec = spec_of(module)
    with pytest.raises(ConfigError, match=f"^network 'net' {told}"):
        gradients(spec, to_vector(module, spec.parts)[None], x, y, module=module)


def test_what_does_not_learn_may_be_of_any_type() -> None:
    """Whole numbers, truth values and short floats count in the fingerprint."""
    prints = set()
    for value in (torch.tensor(3), torch.tensor(True), torch.ones(2, dtype=torch.bfloat16), torch.zeros(0)):
        module = made(Dense)
        module.register_buffer("rest", value, persistent=False)
        prints.add(fingerprint_of_rest(module))
    assert len(prints) == 4


def test_a_part_without_numbers_is_refused() -> None:
    """A dimension of 0 is no part of a network."""
    module = made(Dense)
    module.register_parameter("none", nn.Parameter(torch.zeros(0, 3, dtype=torch.float64)))
    with pytest.raises(ConfigError, match=r"part 'none' of shape \[0, 3\]; want no dimension of 0"):
        spec_of(module)
