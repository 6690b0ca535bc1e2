"""Networks: as torch's own layers compute them, all at once as one after another, from specifications that fit."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from kernfed.errors import ConfigError, DivergedError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.adam import Adam
from kernfed.models.network_spec import (
    NetworkKind,
    NetworkSpec,
    decayed_entries,
    initial_parameters,
    layout,
    make_network_spec,
    norm_entries,
)
from kernfed.tensors.networks import dtype_of, losses, outputs, scores, train
from kernfed.tensors.threads import suited

REGRESSION, BINARY, CLASSES = LearningTask.REGRESSION, LearningTask.BINARY, LearningTask.CLASSIFICATION
SPECS = [
    make_network_spec(NetworkKind.LINEAR, REGRESSION, 5, 1),
    make_network_spec(NetworkKind.MLP, BINARY, 5, 1, (7,)),
    make_network_spec(NetworkKind.MLP, CLASSES, 5, 3, (7, 6)),
    make_network_spec(NetworkKind.CNN, CLASSES, 196, 4, (2, 3, 8), (1, 14, 14)),
    make_network_spec(NetworkKind.CNN, REGRESSION, 2 * 12 * 13, 2, (2, 3, 8, 5), (2, 12, 13)),
]


def module(spec: NetworkSpec, parameters: np.ndarray) -> nn.Module:
    """The same network of torch's own layers."""
    layers: list[nn.Module] = [nn.Unflatten(1, spec.image)] if spec.image else []
    used = layout(spec)
    position = 0
    for i, layer in enumerate(used):
        made: nn.Conv2d | nn.Linear
        if layer.is_convolution:
            made = nn.Conv2d(layer.shape[1], layer.shape[0], 5, padding=2 if i == 0 else 0)
            layers += [made, nn.ReLU(), nn.MaxPool2d(2)]
            if not used[i + 1].is_convolution:
                layers.append(nn.Flatten())
        else:
            made = nn.Linear(layer.shape[1], layer.shape[0])
            layers += [made] if i == len(used) - 1 else [made, nn.ReLU()]
        for tensor in (made.weight, made.bias):
            assert tensor is not None
            size = tensor.numel()
            tensor.data = torch.as_tensor(parameters[position : position + size]).reshape(tensor.shape)
            position += size
    assert position == spec.num_parameters
    return nn.Sequential(*layers).to(dtype_of(spec))


def data(spec: NetworkSpec, rows: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, spec.num_columns, generator=generator, dtype=dtype_of(spec))
    if spec.task is CLASSES:
        labels = torch.randint(spec.num_outputs, (rows,), generator=generator)
        return x, functional.one_hot(labels, spec.num_outputs).to(x.dtype)
    y = torch.randn(rows, spec.num_outputs, generator=generator, dtype=x.dtype)
    return x, (y > 0).to(x.dtype) if spec.task is BINARY else y


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.kind}-{s.task}")
def test_outputs_losses_and_steps_equal_torchs_own(spec: NetworkSpec) -> None:
    """Three networks at once, each against nn.Sequential: outputs, losses, and two gradient steps."""
    stacked = np.stack([initial_parameters(spec, seed) for seed in range(3)])
    parameters = torch.as_tensor(stacked, dtype=dtype_of(spec))
    x, y = data(spec)
    together = outputs(spec, parameters, x)
    batched = losses(spec, parameters, x, y)
    trained = train(spec, parameters, x, y, learning_rate=0.05, num_steps=2, weight_decay=0.1)
    tolerance = 1e-10 if dtype_of(spec) is torch.float64 else 2e-5
    for i in range(3):
        single = module(spec, stacked[i])

        def loss(single: nn.Module = single) -> torch.Tensor:
            found = single(x)
            if spec.task is REGRESSION:
                return functional.mse_loss(found, y, reduction="sum") / len(x)
            if spec.task is BINARY:
                return functional.binary_cross_entropy_with_logits(found, y)
            return functional.cross_entropy(found, y)

        torch.testing.assert_close(together[i], single(x), atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(batched[i], loss(), atol=tolerance, rtol=tolerance)
        named = list(single.named_parameters())
        shrunk, free = ([p for n, p in named if n.endswith(end)] for end in ("weight", "bias"))
        groups: list[dict[str, Any]] = [{"params": shrunk, "weight_decay": 0.1}, {"params": free}]
        step = torch.optim.SGD(groups, lr=0.05)
        for _ in range(2):
            step.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]  # torch gives it no types
            step.step()
        flat = torch.cat([p.detach().reshape(-1) for p in single.parameters()])
        torch.testing.assert_close(trained[i], flat, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("spec", SPECS[1:4], ids=lambda s: f"{s.kind}-{s.task}")
def test_all_at_once_equals_one_after_another_in_batches_of_rows(spec: NetworkSpec) -> None:
    """Every network sees the same batches, whoever else is trained beside it."""
    parameters = torch.as_tensor(np.stack([initial_parameters(spec, seed) for seed in range(4)]), dtype=dtype_of(spec))
    x, y = data(spec)
    how = {"learning_rate": 0.1, "num_steps": 7, "batch_size": 5, "seed": 3}
    together = train(spec, parameters, x, y, **how)  # type: ignore[arg-type]  # settings of any type
    for i in range(4):
        alone = train(spec, parameters[i : i + 1], x, y, **how)[0]  # type: ignore[arg-type]  # settings of any type
        torch.testing.assert_close(together[i], alone, atol=1e-5, rtol=1e-5)


def test_fifty_models_cost_less_than_fifty_trainings() -> None:
    """One batched computation takes at most half the time of a loop (it takes about a tenth)."""
    spec = make_network_spec(NetworkKind.MLP, REGRESSION, 5, 1, (16,))
    parameters = torch.as_tensor(np.stack([initial_parameters(spec, seed) for seed in range(50)]))
    x, y = data(spec, 20)

    def seconds(at_once: bool) -> float:
        pieces = [parameters] if at_once else list(torch.split(parameters, 1))
        began = time.thread_time()  # of the processor: this machine may have other work
        for piece in pieces:
            train(spec, piece, x, y, learning_rate=0.01, num_steps=5)
        return time.thread_time() - began

    with suited(1):  # several wait for each other, and that counts as work
        seconds(True)
        assert min(seconds(True) for _ in range(3)) < 0.5 * min(seconds(False) for _ in range(2))


def test_scores_are_probabilities_of_classes() -> None:
    """Binary ones lie in [0, 1]; those of several classes sum to 1; of a regression they are the outputs."""
    for spec in SPECS:
        parameters = torch.as_tensor(initial_parameters(spec, 1)[None], dtype=dtype_of(spec))
        x, _ = data(spec)
        found = scores(spec, parameters, x)
        if spec.task is BINARY:
            assert bool(((found > 0) & (found < 1)).all())
        elif spec.task is CLASSES:
            torch.testing.assert_close(found.sum(dim=2), torch.ones(1, len(x), dtype=found.dtype))
        else:
            torch.testing.assert_close(found, outputs(spec, parameters, x))


def test_networks_that_leave_the_range_of_numbers_are_told() -> None:
    """With the learning rate; which keys make the steps long the job adds."""
    spec = SPECS[0]
    x, y = data(spec)
    parameters = torch.as_tensor(initial_parameters(spec, 0)[None])
    with pytest.raises(DivergedError, match=r"learning rate 1e\+06.*data\.standardise.*steps are too long"):
        train(spec, parameters, x, y, learning_rate=1e6, num_steps=200)


def test_initial_parameters_are_hes_and_the_same_for_a_seed() -> None:
    """Weights of variance 2/fan-in (within 5 standard errors), biases 0; another seed, other weights."""
    spec = make_network_spec(NetworkKind.MLP, REGRESSION, 100, 1, (400,))
    first = initial_parameters(spec, 5)
    assert np.array_equal(first, initial_parameters(spec, 5))
    assert not np.allclose(first, initial_parameters(spec, 6))
    weights = first[:40_000]
    assert weights.var() == pytest.approx(0.02, abs=5 * 0.02 * np.sqrt(2 / 40_000))
    assert (first[40_000:40_400] == 0).all()


@pytest.mark.parametrize(
    ("kind", "columns", "widths", "image", "message"),
    [
        (NetworkKind.LINEAR, 5, (3,), (), "none for linear"),
        (NetworkKind.MLP, 5, (), (), "widths of the hidden layers"),
        (NetworkKind.MLP, 5, (3,), (1, 2, 3), "image is for a cnn"),
        (NetworkKind.CNN, 100, (6, 16, 8), (1, 12, 12), "a row has 100 columns"),
        (NetworkKind.CNN, 64, (6, 16, 8), (1, 8, 8), "at least 12"),
        (NetworkKind.CNN, 144, (6, 16), (1, 12, 12), "at least one dense width"),
        (NetworkKind.MLP, 100_000, (100_000,), (), "smaller widths"),
    ],
)
def test_networks_that_do_not_fit_are_told(
    kind: NetworkKind, columns: int, widths: tuple[int, ...], image: tuple[int, ...], message: str
) -> None:
    """By key of the job file."""
    with pytest.raises(ConfigError, match=message):
        make_network_spec(kind, REGRESSION, columns, 1, widths, image)


def test_a_specification_that_miscounts_is_refused() -> None:
    """A peer cannot state another number of parameters than follows from the layers."""
    spec = SPECS[1]
    wrong = NetworkSpec(spec.kind, spec.task, 5, 1, spec.widths, spec.image, 3)
    with pytest.raises(ConfigError, match="states 3 parameters"):
        layout(wrong)


def test_adam_equals_torchs_and_keeps_models_apart() -> None:
    """Five steps on two models against torch.optim.Adam on each."""
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=(2, 4)), random.normal(size=(5, 2, 4))
    current, state = start, Adam.start((2, 4))
    for g in gradients:
        current, state = state.step(current, g, 0.1)
    for i in range(2):
        p = torch.tensor(start[i], requires_grad=True)
        step = torch.optim.Adam([p], lr=0.1)
        for g in gradients:
            p.grad = torch.tensor(g[i])
            step.step()
        np.testing.assert_allclose(current[i], p.detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("kind", [NetworkKind.MLP, NetworkKind.CNN])
def test_batch_norm_is_that_of_torch(kind: NetworkKind) -> None:
    """Over a batch, and with kept statistics, for each of several networks at once."""
    image, columns, widths = ((1, 12, 12), 144, (2, 3, 6)) if kind is NetworkKind.CNN else ((), 5, (4, 3))
    spec = make_network_spec(kind, CLASSES, columns, 3, widths, image, batch_norm=True)
    kind_of = dtype_of(spec)
    random = np.random.default_rng(3)
    parameters = np.stack([initial_parameters(spec, s) for s in (0, 1)])
    norm, statistics = norm_entries(spec)
    parameters[:, norm] += 0.3 * np.abs(random.normal(size=(2, norm.sum())))
    x = torch.tensor(random.normal(size=(9, columns)), dtype=kind_of)
    given = torch.tensor(parameters, dtype=kind_of)
    for training in (True, False):
        found = outputs(spec, given, x, [] if training else None)
        for j in range(2):
            network = torch_network(spec, given[j]).train(training)
            torch.testing.assert_close(found[j], network(x), atol=2e-5, rtol=1e-4)
    assert statistics.sum() == norm.sum() // 2


def torch_network(spec: NetworkSpec, parameters: torch.Tensor) -> torch.nn.Sequential:
    """The same network from torch's own layers."""
    layers: list[nn.Module] = [nn.Unflatten(1, spec.image)] if spec.image else []
    pieces = iter(torch.split(parameters, [size for layer in layout(spec) for size in layer.sizes]))
    for i, layer in enumerate(layout(spec)):
        weights, bias, *rest = (next(pieces) for _ in layer.sizes)
        made: nn.Module
        if layer.is_convolution:
            made = nn.Conv2d(layer.shape[1], layer.shape[0], 5, padding=2 if i == 0 else 0)
        else:
            if spec.image and layout(spec)[i - 1].is_convolution:
                layers.append(nn.Flatten())
            made = nn.Linear(layer.shape[1], layer.shape[0])
        made.weight.data, made.bias.data = weights.reshape(layer.shape), bias  # type: ignore[union-attr]  # both kinds of layer have them
        layers.append(made)
        if rest:
            norm = nn.BatchNorm2d(layer.num_outputs) if layer.is_convolution else nn.BatchNorm1d(layer.num_outputs)
            norm.weight.data, norm.bias.data = rest[0], rest[1]
            norm.running_mean, norm.running_var = rest[2], rest[3]
            layers += [norm, nn.ReLU(), *([nn.MaxPool2d(2)] if layer.is_convolution else [])]
    return nn.Sequential(*layers).to(parameters.dtype)


def test_statistics_follow_the_batches() -> None:
    """One step moves means and variances by a tenth of the way, whatever the learning rate; decay leaves them alone."""
    spec = make_network_spec(NetworkKind.MLP, REGRESSION, 3, 1, (4,), batch_norm=True)
    start = torch.tensor(initial_parameters(spec, 0))[None]
    random = np.random.default_rng(0)
    x, y = torch.tensor(random.normal(size=(20, 3)) + 1.0), torch.tensor(random.normal(size=(20, 1)))
    _, statistics = norm_entries(spec)
    seen: list[torch.Tensor] = []
    outputs(spec, start, x, seen)
    for rate in (0.01, 0.1):
        moved = train(spec, start, x, y, learning_rate=rate, num_steps=1, weight_decay=0.5)[0]
        want = 0.9 * start[0, statistics] + 0.1 * torch.cat(seen, dim=1)[0]
        torch.testing.assert_close(moved[statistics], want)


@pytest.mark.parametrize("normed", [False, True])
def test_the_proximal_term_pulls_back_to_the_start(normed: bool) -> None:
    """By hand: the second step has μ (θ - θ_0) beside the gradient, but for means and variances; the first has none."""
    spec = make_network_spec(NetworkKind.MLP, LearningTask.REGRESSION, 3, 1, (4,), batch_norm=normed)
    x, y = data(spec)
    start = torch.tensor(initial_parameters(spec, 1))[None]
    one = train(spec, start, x, y, learning_rate=0.1, num_steps=1, proximal=2.0)
    torch.testing.assert_close(one, train(spec, start, x, y, learning_rate=0.1, num_steps=1), rtol=0, atol=0)
    free = train(spec, one, x, y, learning_rate=0.1, num_steps=1)
    moving = torch.from_numpy(~norm_entries(spec)[1]).double()
    held = train(spec, start, x, y, learning_rate=0.1, num_steps=2, proximal=2.0)
    near = 1e-7 if normed else 1e-12  # beside means and variances a step's size is a float32
    torch.testing.assert_close(held, free - 0.1 * 2.0 * moving * (one - start), rtol=near, atol=near)


def test_decay_leaves_biases_alone() -> None:
    """Only weights shrink: where the gradient is 0, a step takes their share off them and nothing off the others."""
    spec = make_network_spec(NetworkKind.MLP, REGRESSION, 3, 1, (4,), batch_norm=True)
    shrunk = decayed_entries(spec)
    assert shrunk.sum() == 3 * 4 + 4
    linear = make_network_spec(NetworkKind.LINEAR, REGRESSION, 2, 1)
    start = torch.tensor([[0.0, 0.0, 5.0]], dtype=torch.float64)
    x, y = torch.zeros(4, 2, dtype=torch.float64), torch.full((4, 1), 5.0, dtype=torch.float64)
    moved = train(linear, start, x, y, learning_rate=0.1, num_steps=50, weight_decay=1.0)
    torch.testing.assert_close(moved, start)


@pytest.mark.parametrize("task", [BINARY, CLASSES])
def test_a_start_goes_with_the_classes(task: LearningTask) -> None:
    """Classes in another place start with the weights that they had: scores are permuted, or 1 minus the others."""
    outputs_of = 1 if task is BINARY else 3
    spec = make_network_spec(NetworkKind.MLP, task, 4, outputs_of, (6,))
    places = ((0, 1), (1, 0)) if task is BINARY else ((0, 1, 2), (2, 0, 1))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, turned = (scores(spec, torch.tensor(initial_parameters(spec, 3, p))[None], x)[0] for p in places)
    if task is BINARY:
        torch.testing.assert_close(turned, 1.0 - plain)
    else:
        torch.testing.assert_close(turned[:, list(places[1])], plain)
    assert np.array_equal(initial_parameters(spec, 3, places[0]), initial_parameters(spec, 3))


def test_linear_networks_have_nothing_to_normalise() -> None:
    """The key is named."""
    with pytest.raises(ConfigError, match="batch_norm"):
        make_network_spec(NetworkKind.LINEAR, REGRESSION, 3, 1, batch_norm=True)
