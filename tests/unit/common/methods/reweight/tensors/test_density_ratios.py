"""Density ratios fitted to samples whose true ratio is known, and to samples that have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from kernfed.arrays import Flags
from kernfed.errors import DataError
from kernfed.methods.reweight.ratio_spec import DEFAULT_RATIOS, Divergence, RatioModel
from kernfed.methods.reweight.tensors.density_ratios import Fitted, effective_sample_size, limited, match
from kernfed.methods.reweight.tensors.ratio_bounds import Bins
from kernfed.methods.reweight.tensors.ratio_features import principal_axes

SHIFT = 0.4


def normal(n: int, d: int, seed: int, shift: float = 0.0) -> Tensor:
    x = np.random.default_rng(seed).normal(size=(n, d))
    x[:, 0] += shift
    return torch.from_numpy(x)


def equal(num: int, total: float = 1.0) -> Tensor:
    return torch.full((num,), total / num, dtype=torch.float64)


def relative_error(fitted: Fitted, x: Tensor, shift: float = SHIFT) -> float:
    true = torch.exp(shift * x[:, 0] - shift**2 / 2)
    return float(((fitted.ratio(x) - true).abs() / true).mean())


def test_the_default_is_near_the_true_ratio_of_gaussians() -> None:
    """2000 rows in 5 dimensions: mean relative error below 0.11, that of tuned early stopping; the mean is 1."""
    x, xt = normal(2000, 5, 0), normal(2000, 5, 1, SHIFT)
    found = match(x, xt, equal(2000), DEFAULT_RATIOS)
    assert relative_error(found, x) < 0.11
    assert float(found.ratio(x).mean()) == pytest.approx(1.0, abs=0.01)
    assert found.gain > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("divergence", [Divergence.UKL, Divergence.LOGISTIC, Divergence.ROBUST, Divergence.PU])
def test_every_divergence_finds_the_ratio(divergence: Divergence) -> None:
    """By gradient steps on the linear model, 1000 rows: better than ratios of 1 by a third."""
    x, xt = normal(1000, 2, 2), normal(1000, 2, 3, SHIFT)
    spec = replace(DEFAULT_RATIOS, divergence=divergence, num_steps=250, num_frequencies=50, learning_rate=1e-2)
    true = torch.exp(SHIFT * x[:, 0] - SHIFT**2 / 2)
    assert relative_error(match(x, xt, equal(1000), spec), x) < 0.67 * float(((1 - true).abs() / true).mean())


def test_components_are_what_the_ratio_is_a_function_of() -> None:
    """Ratios and bins are those of points that were brought to their principal components before."""
    x, xt = normal(300, 6, 6), normal(200, 6, 7, 1.0)
    x[:, 2:], xt[:, 2:] = 0.3 * x[:, 2:], 0.3 * xt[:, 2:]
    axes = principal_axes(torch.cat([x, xt]), 2)
    found = match(x, xt, equal(200), replace(DEFAULT_RATIOS, num_components=2))
    inside = match(x @ axes, xt @ axes, equal(200), DEFAULT_RATIOS)
    np.testing.assert_allclose(found.ratio(x).numpy(), inside.ratio(x @ axes).numpy(), rtol=1e-9)
    assert found.bins.bound == inside.bins.bound
    moved = x + torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) @ (
        torch.eye(6, dtype=torch.float64) - axes @ axes.T
    )
    np.testing.assert_allclose(found.ratio(moved).numpy(), found.ratio(x).numpy(), rtol=1e-6)
    wide = replace(DEFAULT_RATIOS, num_components=6)
    np.testing.assert_array_equal(
        match(x, xt, equal(200), wide).ratio(x).numpy(), match(x, xt, equal(200), DEFAULT_RATIOS).ratio(x).numpy()
    )


@pytest.mark.slow
def test_a_network_finds_the_ratio() -> None:
    """An MLP that stops on held-out points: better than ratios of 1 by a third."""
    x, xt = normal(1500, 2, 4), normal(1500, 2, 5, 0.7)
    spec = replace(DEFAULT_RATIOS, divergence=Divergence.UKL, model=RatioModel.MLP, widths=(32,), num_steps=500)
    true = torch.exp(0.7 * x[:, 0] - 0.7**2 / 2)
    assert relative_error(match(x, xt, equal(1500), spec), x, 0.7) < 0.67 * float(((1 - true).abs() / true).mean())


@pytest.mark.slow
def test_a_cnn_tells_images_apart() -> None:
    """Images with a bright corner, of which there are more at test time, weigh more."""
    random = np.random.default_rng(0)

    def images(share: float, seed: int) -> tuple[Tensor, Flags]:
        x = np.random.default_rng(seed).normal(size=(150, 1, 12, 12)) * 0.3
        bright = random.random(150) < share
        x[bright, 0, :6, :6] += 1.5
        return torch.from_numpy(x.reshape(150, 144)), bright

    (x, bright), (xt, _) = images(0.3, 1), images(0.8, 2)
    spec = replace(
        DEFAULT_RATIOS, model=RatioModel.CNN, widths=(2, 4, 16), image=(1, 12, 12), num_steps=150, learning_rate=3e-3
    )
    ratios = match(x, xt, equal(150), spec).ratio(x).numpy()
    assert ratios[bright].mean() > 2 * ratios[~bright].mean()


def test_several_test_distributions_add_up() -> None:
    """Two clients' test points, of different counts: the ratio is the sum of both, and its mean is 2."""
    x = normal(1500, 1, 6)
    xt = torch.cat([normal(600, 1, 7, SHIFT), normal(1200, 1, 8, -SHIFT)])
    weights = torch.cat([equal(600), equal(1200)])
    found = match(x, xt, weights, DEFAULT_RATIOS)
    true = 2 * np.exp(-(SHIFT**2) / 2) * torch.cosh(SHIFT * x[:, 0])
    assert float(((found.ratio(x) - true).abs() / true).mean()) < 0.11
    assert float(found.ratio(x).mean()) == pytest.approx(2.0, abs=0.02)


def test_the_ratio_of_a_sample_to_itself_is_1() -> None:
    """All weights are equal, and the effective sample size is the number of rows."""
    x = normal(300, 3, 9)
    found = match(x, x, equal(300), DEFAULT_RATIOS)
    ratios, num_cut = limited(found.ratio(x), found.bins, DEFAULT_RATIOS, 1.0)
    assert float(ratios.mean()) == pytest.approx(1.0, abs=1e-12)
    assert effective_sample_size(ratios.numpy()) > 0.97 * 300
    assert num_cut <= 300


def test_disjoint_samples_are_refused() -> None:
    """No weights make up for supports that do not overlap: an error, not a number."""
    with pytest.raises(DataError, match="do not overlap"):
        match(normal(100, 2, 10), normal(100, 2, 11, 80.0), equal(100), DEFAULT_RATIOS)


def test_one_outlier_does_not_move_the_others() -> None:
    """A test point far from all training rows is uncovered, is counted as such, and leaves the ratios near 1."""
    x, xt = normal(400, 2, 12), normal(400, 2, 13)
    xt[0] = 1e3
    found = match(x, xt, equal(400), DEFAULT_RATIOS)
    assert found.bins.uncovered >= 0.99 / 400
    ratios, _ = limited(found.ratio(x), found.bins, DEFAULT_RATIOS, 1.0)
    assert effective_sample_size(ratios.numpy()) > 0.8 * 400


@pytest.mark.slow
def test_plain_matching_runs_away_where_the_non_negative_does_not() -> None:
    """Few points, a flexible network and no early stop: plain ratios at test points leave all bounds."""
    x, xt = normal(60, 2, 14), normal(60, 2, 15, SHIFT)
    spec = replace(
        DEFAULT_RATIOS,
        model=RatioModel.MLP,
        widths=(128, 128),
        hold_out=0.0,
        num_steps=250,
        learning_rate=5e-3,
        num_clusters=4,
    )
    non_negative = match(x, xt, equal(60), spec).ratio(xt)
    plain = match(x, xt, equal(60), replace(spec, non_negative=False)).ratio(xt)
    assert float(plain.mean()) > 3 * float(non_negative.mean())


@pytest.mark.slow
def test_early_stopping_cuts_the_error_by_a_third() -> None:
    """The same network, plain divergence, with and without held-out points, at 300 rows."""
    x, xt = normal(300, 2, 16), normal(300, 2, 17, SHIFT)
    spec = replace(
        DEFAULT_RATIOS, model=RatioModel.MLP, widths=(64, 64), num_steps=300, learning_rate=5e-3, non_negative=False
    )
    stopped = match(x, xt, equal(300), spec)
    through = match(x, xt, equal(300), replace(spec, hold_out=0.0))
    assert stopped.num_steps < through.num_steps
    assert relative_error(stopped, x) < 0.67 * relative_error(through, x)


def test_ratios_are_cut_by_the_stated_rule() -> None:
    """At the bound of the bins, or at a multiple of the mean; then scaled to the mean that they must have."""
    bins = Bins(np.array([2.0]), np.array([4]), 2.0, 0.0)
    ratios = torch.tensor([0.0, 1.0, 2.0, 5.0, -1.0], dtype=torch.float64)
    found, num_cut = limited(ratios, bins, DEFAULT_RATIOS, 3.0)
    assert num_cut == 1
    torch.testing.assert_close(found, torch.tensor([0.0, 3, 6, 6, 0], dtype=torch.float64))
    found, num_cut = limited(ratios, bins, replace(DEFAULT_RATIOS, clip_at_bound=False, clip=1.0), 1.0)
    assert num_cut == 2
    assert float(found.mean()) == pytest.approx(1.0)
    found, num_cut = limited(ratios, bins, replace(DEFAULT_RATIOS, clip_at_bound=False), 1.6)
    assert num_cut == 0
    torch.testing.assert_close(found, ratios.clamp(min=0))


def test_held_out_rows_say_where_to_cut_and_whether_there_is_a_shift() -> None:
    """The default cuts only where that helps; two samples of one law have no gain; no ratio is negative anywhere."""
    x, xt = normal(150, 1, 20, -0.6), normal(200, 1, 21, 0.6)
    found = match(x, xt, equal(200), DEFAULT_RATIOS)
    assert found.clipping(DEFAULT_RATIOS).clip_at_bound == (found.cut < found.held_out)
    always = replace(DEFAULT_RATIOS, clip_held_out=False)
    assert found.clipping(always).clip_at_bound
    assert found.gain > 0.3
    assert match(normal(150, 1, 22), normal(200, 1, 23), equal(200), DEFAULT_RATIOS).gain < 0.05
    assert bool((found.ratio(torch.linspace(-9, 9, 400, dtype=torch.float64)[:, None]) >= 0).all())


def test_what_cannot_be_weighted_is_refused() -> None:
    """Too few points, and ratios that are 0 everywhere."""
    with pytest.raises(DataError, match="too few"):
        match(normal(1, 2, 0), normal(5, 2, 0), equal(5), DEFAULT_RATIOS)
    with pytest.raises(DataError, match="all density ratios are 0"):
        limited(torch.zeros(3, dtype=torch.float64), Bins(np.zeros(1), np.zeros(1, int), 0.0, 0.0), DEFAULT_RATIOS, 1.0)


def test_effective_sample_size() -> None:
    """Equal weights are worth all rows, one weight is worth one."""
    assert effective_sample_size([2.0, 2.0, 2.0]) == pytest.approx(3.0)
    assert effective_sample_size([0.0, 5.0]) == pytest.approx(1.0)
    assert effective_sample_size([0.0, 0.0]) == 0.0


def of_network(train: Tensor, test: Tensor, *, temper: bool, seed: int) -> Fitted:
    """The ratio of a network, by few steps."""
    spec = replace(DEFAULT_RATIOS, model=RatioModel.MLP, divergence=Divergence.UKL, num_steps=300, seed=seed)
    return match(train, test, equal(len(test)), replace(spec, temper=temper))


@pytest.mark.slow
def test_two_samples_of_one_law_keep_their_rows() -> None:
    """Networks with few rows: weights are drawn towards equal ones as rows held out prefer, and it is said."""
    worth, far, notes = {False: 0.0, True: 0.0}, {False: 0.0, True: 0.0}, []
    for seed in range(4):
        train, test = normal(60, 2, 2 * seed), normal(60, 2, 2 * seed + 1)
        for temper in worth:
            found = of_network(train, test, temper=temper, seed=seed)
            ratios = found.ratio(train).numpy()
            worth[temper] += effective_sample_size(ratios) / 60 / 4
            far[temper] += float(np.abs(ratios / ratios.mean() - 1).mean()) / 4
            notes.append(found.note)
    assert worth[True] >= worth[False]
    assert far[True] < 0.9 * far[False]
    assert worth[True] > 0.8
    assert any("of their distance from equal weights, as rows held out prefer" in note for note in notes)


def test_copies_are_held_out_together() -> None:
    """Rows repeated four times: no copy of a held-out row was fitted, so nothing is learned by heart."""
    rows, points = normal(30, 2, 0), normal(30, 2, 1)
    often = of_network(rows.repeat_interleave(4, 0), points.repeat_interleave(4, 0), temper=True, seed=0)
    assert effective_sample_size(often.ratio(rows).numpy()) / 30 > 0.7
