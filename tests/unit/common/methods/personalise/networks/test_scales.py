"""Networks in the scale of their mixtures: the same functions on rows as they are, with gradients by the chain rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernfed.federation.messages.data import LearningTask
from kernfed.methods.personalise.networks.scales import LEAST_SPREAD, SCALE, Scales
from kernfed.models.network_spec import NetworkKind, NetworkSpec, make_network_spec
from kernfed.tensors.networks import outputs

SPECS = [
    make_network_spec(NetworkKind.LINEAR, LearningTask.REGRESSION, 3, 2),
    make_network_spec(NetworkKind.MLP, LearningTask.REGRESSION, 3, 2, (4,)),
    make_network_spec(NetworkKind.MLP, LearningTask.REGRESSION, 3, 2, (4, 5)),
]


def drawn(random: np.random.Generator) -> Scales:
    """Of two networks on three columns, with two outputs."""
    return Scales(
        random.normal(size=(2, 3)),
        random.uniform(0.2, 3.0, size=(2, 3)),
        random.normal(size=(2, 2)),
        random.uniform(0.2, 3.0, size=(2, 2)),
    )


@pytest.mark.parametrize("spec", SPECS)
def test_a_network_on_rows_is_that_of_its_scale(spec: NetworkSpec) -> None:
    """S g((x - c)/d) + m for each network."""
    random = np.random.default_rng(1)
    scales, theta, x = drawn(random), random.normal(size=(2, spec.num_parameters)), random.normal(size=(7, 3))
    on_rows = outputs(spec, torch.tensor(scales.to_rows(spec, theta)), torch.tensor(x)).numpy()
    for t in range(2):
        scaled = torch.tensor((x - scales.centre[t]) / scales.spread[t])
        own = outputs(spec, torch.tensor(theta[t : t + 1]), scaled).numpy()[0]
        np.testing.assert_allclose(on_rows[t], own * scales.target_spread[t] + scales.target_centre[t], atol=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_gradients_follow_the_chain_rule(spec: NetworkSpec) -> None:
    """Automatic differentiation through the scaled network gives the same."""
    random = np.random.default_rng(2)
    scales, theta, x = drawn(random), random.normal(size=(2, spec.num_parameters)), random.normal(size=(7, 3))
    on_rows = torch.tensor(scales.to_rows(spec, theta), requires_grad=True)
    (gradient,) = torch.autograd.grad(outputs(spec, on_rows, torch.tensor(x)).square().sum(), on_rows)
    found = scales.of_gradients(spec, gradient.numpy())
    for t in range(2):
        own = torch.tensor(theta[t : t + 1], requires_grad=True)
        scaled = torch.tensor((x - scales.centre[t]) / scales.spread[t])
        spread, centre = torch.tensor(scales.target_spread[t]), torch.tensor(scales.target_centre[t])
        (wanted,) = torch.autograd.grad((outputs(spec, own, scaled)[0] * spread + centre).square().sum(), own)
        np.testing.assert_allclose(found[t], wanted.numpy()[0], rtol=1e-9, atol=1e-9)


def test_scales_are_those_of_the_mixtures_rows() -> None:
    """Moments of the weighted rows of all clients; the last network, of all rows alike, stays as it is."""
    random = np.random.default_rng(3)
    rows = [random.normal(size=(9, 3)) * (k + 1) + k for k in range(3)]
    rows[0][:, 2] = rows[1][:, 2] = 4.0
    moments = [(r.mean(axis=0), r.std(axis=0)) for r in rows]
    mix = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
    found = Scales.of_mixtures(mix, moments, None, SPECS[0])
    for t in range(2):
        weights = np.repeat(mix[t] / 9, 9)
        every = np.concatenate(rows)
        mean = weights @ every
        np.testing.assert_allclose(found.centre[t], mean, atol=1e-12)
        deviation = np.sqrt(weights @ np.square(every - mean))
        np.testing.assert_allclose(found.spread[t, :2], deviation[:2], atol=1e-12)
    everyone = np.concatenate(rows)[:, 2].std()
    assert found.spread[0, 2] == pytest.approx(LEAST_SPREAD * everyone)  # where a mixture is constant
    assert (found.centre[2] == 0).all()
    assert (found.spread[2] == 1).all()
    assert (found.target_spread == 1).all()
    again = Scales.from_arrays({name.removeprefix(SCALE): array for name, array in found.to_arrays().items()})
    assert again is not None
    np.testing.assert_array_equal(again.spread, found.spread)
    assert Scales.from_arrays({}) is None
