"""Density ratios from samples: fitted by least squares in closed form, or by gradient steps on a Bregman divergence.

Source: the FTW-ERM paper (`kernfed.methods.reweight.ratio_spec`), Section 3: histogram-based density ratio matching.
Beyond it, and the default: training stops where the divergence on held-out points is least, which matters more than
the non-negativity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from kernfed import rng
from kernfed.arrays import Integers
from kernfed.errors import DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, draw_frequencies, make_spec
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.folds import deal, keep_apart, units
from kernfed.maths.statistics import median_distance
from kernfed.methods.reweight.ratio_spec import Divergence, RatioModel, RatioSpec
from kernfed.methods.reweight.tensors.bregman import Bregman
from kernfed.methods.reweight.tensors.ratio_bounds import Bins, cluster_bins
from kernfed.methods.reweight.tensors.ratio_features import principal_axes
from kernfed.models.network_spec import NetworkKind, NetworkSpec, decayed_entries, initial_parameters, make_network_spec
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.linalg import cholesky
from kernfed.tensors.networks import dtype_of, outputs

FLOOR = 1e-6
"""Added to a network's softplus, for log r must be finite."""

NO_OVERLAP = 0.9
"""From this share of test points in bins without a training row on, there is no ratio to estimate."""

LEAST_EFFECTIVE = 0.05
"""Share of the rows that weighted rows must be worth, where ratios are found by steps."""

_LENGTHSCALES = (0.25, 0.5, 1.0, 2.0)
"""Of the linear model, times the median distance."""
_RIDGES = tuple(10.0**e for e in (-5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0))
_FOLDS = 5
_KEPT = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0)
"""Candidates for the share of their distance from equal weights that ratios keep."""
_EVERY = 10
_PATIENCE = 30
"""Evaluations without a new minimum after which training ends."""


Groups = tuple[Integers | None, Integers | None]
"""Number of each row's group, of two samples; None: its rows have none."""
NO_GROUPS: Groups = (None, None)


@dataclass(frozen=True, slots=True)
class Fitted:
    """An estimated ratio."""

    bins: Bins
    ratio: Callable[[Tensor], Tensor]
    """Ratios at points (n, d), shape (n,), at least 0, as the model gives them: neither clipped nor scaled."""
    num_steps: int
    """After which the held-out divergence was least; 0 for a closed form."""
    held_out: float
    """The divergence (without its constant) there."""
    constant: float
    """That of the ratio K everywhere, which finds no shift, on the same rows."""
    cut: float
    """That of the ratios cut at the greatest ratio of a bin."""
    note: str = ""
    """What was done to the ratios that a person should know."""

    @property
    def gain(self) -> float:
        """By how much it is better on held-out rows than no weights, of that divergence; 0 or less: no shift found."""
        return (self.constant - self.held_out) / max(abs(self.constant), 1e-12)

    def clipping(self, spec: RatioSpec) -> RatioSpec:
        """The specification with its rule of where to cut settled, as the held-out rows say."""
        helps = self.cut < self.held_out or not spec.clip_held_out
        return replace(spec, clip_at_bound=spec.clip_at_bound and helps)


def match(train: Tensor, test: Tensor, test_weights: Tensor, spec: RatioSpec, groups: Groups = NO_GROUPS) -> Fitted:
    """Estimate r(x) = Σ_l p_l^te(x) / p^tr(x).

    Args:
        train: This client's training rows, shape (n, d).
        test: Test points of all clients that count, shape (m, d), in any order; results depend on it.
        test_weights: 1/n_l^te for each, shape (m,), so that they sum to K.
        spec: How.
        groups: Of training rows, shape (n,), and of test points, shape (m,); a group lies in one fold. None: no groups.

    Raises:
        DataError: There are fewer than 2 points of a sort, or nearly all test points lie where no training row does.
        NumericalError: Training left the range of the divergence.
    """
    if min(len(train), len(test)) < 2:
        raise DataError(
            f"{len(train)} training rows and {len(test)} test points are too few for a density ratio, which needs 2 of "
            "each; a client with fewer test rows than policy.min_rows has none: raise data.test_fraction, or give it a "
            "test partition"
        )
    if 0 < spec.num_components < train.shape[1]:
        axes = principal_axes(torch.cat([train, test]), spec.num_components)
        projected = train.double() @ axes, test.double() @ axes
        inner = match(*projected, test_weights, replace(spec, num_components=0), groups)
        return replace(inner, ratio=lambda rows: inner.ratio(rows.double() @ axes))
    bins = cluster_bins(train, test, test_weights, spec.num_clusters, spec.min_cluster_rows, spec.seed)
    if bins.uncovered >= NO_OVERLAP:
        raise DataError(
            f"{100 * bins.uncovered:.0f} % of the test points lie where this client has no training row: the supports "
            "do not overlap, and no weights can make up for that; leave this client out, or use other columns"
        )
    if spec.model is RatioModel.LINEAR and spec.divergence is Divergence.LSIF:
        return _closed_form(train, test, test_weights, spec, bins, groups)
    return _by_gradient(train, test, test_weights, spec, bins, groups)


def limited(ratios: Tensor, bins: Bins, spec: RatioSpec, total: float) -> tuple[Tensor, int]:
    """Cut ratios down by the stated rule, then scale them to the mean that they must have.

    Args:
        ratios: At training rows, shape (n,).
        bins: Of the same rows.
        spec: `clip` and `clip_at_bound` say where to cut; both may.
        total: K: the mean of a ratio over the training distribution.

    Returns:
        Ratios, shape (n,), of mean `total`; and how many were cut.

    Raises:
        DataError: All are 0.
    """
    found = ratios.clamp(min=0.0)
    limit = bins.bound if spec.clip_at_bound and bins.bound > 0 else float("inf")
    if spec.clip > 0:
        limit = min(limit, spec.clip * float(found.mean()))
    num_cut = int((found > limit).sum())
    found = found.clamp(max=limit)
    mean = float(found.mean())
    if not mean > 0:
        raise DataError("all density ratios are 0: no training row looks like a test point; leave this client out")
    return found * (total / mean), num_cut


def effective_sample_size(weights: npt.ArrayLike) -> float:
    """Compute (Σ w)²/Σ w²: how many equally weighted rows are worth as much; 0 where all weights are 0."""
    w = np.asarray(weights, np.float64)
    squares = float(np.square(w).sum())
    return float(w.sum()) ** 2 / squares if squares > 0 else 0.0


def _closed_form(train: Tensor, test: Tensor, weights: Tensor, spec: RatioSpec, bins: Bins, groups: Groups) -> Fitted:
    """r(x) = a'φ(x) with a = (H + ridge R)⁻¹ h, H = mean_tr φφ', h = Σ_l mean_te,l φ; the constant is not penalised.

    With the constant free, the mean of r over the training rows is K exactly. Source: Kanamori et al. (2009), uLSIF.
    """
    union = torch.cat([train, test]).cpu().numpy()
    scale = max(median_distance(union, _distances(spec)).value, 1e-12)
    folds_tr = _folds(train, spec.seed, "train", groups[0])
    folds_te = _folds(test, spec.seed, "test", groups[1])
    best: tuple[float, float, float, float] | None = None
    for factor in _LENGTHSCALES:
        phi = _feature_map(spec, train.shape[1], factor * scale)
        scores, cuts = _cross_validate(phi(train), phi(test), weights, folds_tr, folds_te, bins.bound)
        for ridge, score, cut in zip(_RIDGES, scores, cuts, strict=True):
            if best is None or score < best[0]:
                best = score, factor * scale, ridge, cut
    assert best is not None  # noqa: S101  # there are candidates
    held_out, lengthscale, ridge, cut = best
    phi = _feature_map(spec, train.shape[1], lengthscale)
    z = phi(train)
    a = _solve(z.T @ z / len(z), weights @ phi(test), ridge)
    return Fitted(bins, lambda x: (phi(x) @ a).clamp(min=0.0), 0, held_out, -(float(weights.sum()) ** 2) / 2.0, cut)


def _feature_map(spec: RatioSpec, num_columns: int, lengthscale: float) -> Callable[[Tensor], Tensor]:
    made = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, num_columns, lengthscale, spec.num_frequencies, spec.seed)
    frequencies = draw_frequencies(made)

    def phi(x: Tensor) -> Tensor:
        mapped = FeatureMap(made, device=x.device, frequencies=frequencies)(x.double())
        return torch.cat([torch.ones_like(mapped[:, :1]), mapped], dim=1)

    return phi


def _cross_validate(
    z: Tensor, zt: Tensor, weights: Tensor, folds_tr: Tensor, folds_te: Tensor, bound: float
) -> tuple[list[float], list[float]]:
    """Held-out ½ mean_tr r² - Σ_l mean_te,l r of each ridge, mean over folds; and that with ratios cut at a bound."""
    scores, cuts, num_folds = np.zeros(len(_RIDGES)), np.zeros(len(_RIDGES)), 0
    limit = bound if bound > 0 else float("inf")
    total = float(weights.sum())
    for fold in range(_FOLDS):
        out_tr, out_te = folds_tr == fold, folds_te == fold
        if not bool(out_tr.any()) or not bool(out_te.any()) or bool(out_tr.all()) or bool(out_te.all()):
            continue
        num_folds += 1
        inside = z[~out_tr]
        h = inside.T @ inside / len(inside)
        b = weights[~out_te] @ zt[~out_te] * (total / float(weights[~out_te].sum()))
        held = weights[out_te] * (total / float(weights[out_te].sum()))
        a = _solve_all(h, b)
        r_tr, r_te = (z[out_tr] @ a).clamp(min=0.0), (zt[out_te] @ a).clamp(min=0.0)
        scores += (r_tr.square().mean(dim=0) / 2.0 - held @ r_te).cpu().numpy()
        c_tr, c_te = r_tr.clamp(max=limit), r_te.clamp(max=limit)
        cuts += (c_tr.square().mean(dim=0) / 2.0 - held @ c_te).cpu().numpy()
    num_folds = max(1, num_folds)
    return [float(s) for s in scores / num_folds], [float(s) for s in cuts / num_folds]


def _solve(h: Tensor, b: Tensor, ridge: float) -> Tensor:
    shifted = h.clone()
    shifted.diagonal()[1:].add_(ridge)
    return cholesky(shifted, name=f"second moment of ratio features + {ridge:g} I").solve(b[:, None])[:, 0]


def _solve_all(h: Tensor, b: Tensor) -> Tensor:
    """What `_solve` gives for each of the ridges, (P, 9), by one call: with few features calls cost most."""
    shifted = h.repeat(len(_RIDGES), 1, 1)
    shifted.diagonal(dim1=1, dim2=2)[:, 1:] += torch.tensor(_RIDGES, dtype=h.dtype, device=h.device)[:, None]
    factors, info = torch.linalg.cholesky_ex(shifted)
    diagonal = factors.diagonal(dim1=1, dim2=2)
    least = diagonal.amin(dim=1) > diagonal.amax(dim=1) * torch.finfo(h.dtype).eps ** 0.5
    if bool(info.any()) or not bool(least.all()):
        return torch.stack([_solve(h, b, ridge) for ridge in _RIDGES], dim=1)  # one of them says what is wrong
    found: Tensor = torch.cholesky_solve(b[:, None].expand(len(_RIDGES), -1, 1), factors)[:, :, 0].T
    return found


def _distances(spec: RatioSpec) -> rng.Stream:
    """Draws the rows whose distances give the lengthscale."""
    return rng.stream(spec.seed, "ratios", "distances")


def _folds(rows: Tensor, seed: int, name: str, groups: Integers | None) -> Tensor:
    """Fold of each row, balanced, copies and groups in one fold, shape (num,)."""
    order = rng.stream(seed, "ratios", "folds", name).permutation(len(rows))
    return torch.from_numpy(deal(order, units(rows.cpu().numpy(), groups), _FOLDS)).to(rows.device)


def ratio_network(spec: RatioSpec, num_columns: int) -> NetworkSpec:
    """The network behind a ratio, with one output.

    Raises:
        ConfigError: Its parts do not fit the columns.
    """
    kind = NetworkKind.CNN if spec.model is RatioModel.CNN else NetworkKind.MLP
    widths = spec.widths or ((6, 16, 120, 84) if kind is NetworkKind.CNN else (64, 64))
    return make_network_spec(kind, LearningTask.REGRESSION, num_columns, 1, widths, spec.image)


def _by_gradient(train: Tensor, test: Tensor, weights: Tensor, spec: RatioSpec, bins: Bins, groups: Groups) -> Fitted:
    """Algorithm 1 with Adam; ends at the least held-out divergence."""
    phi: Callable[[Tensor], Tensor] = lambda x: x  # noqa: E731
    if spec.model is RatioModel.LINEAR:
        union = torch.cat([train, test]).cpu().numpy()
        scale = max(median_distance(union, _distances(spec)).value, 1e-12)
        phi = _feature_map(spec, train.shape[1], scale)
        network = make_network_spec(NetworkKind.LINEAR, LearningTask.REGRESSION, 1 + spec.num_frequencies, 1)
    else:
        network = ratio_network(spec, train.shape[1])
    kind = dtype_of(network)
    x, xt, w = phi(train).to(kind), phi(test).to(kind), weights.to(kind)
    total = float(weights.sum())
    # Ratios of `pu` live in (0, 1): what is fitted there is r over its bound, and so are the test distributions.
    top = max(bins.bound, 1e-12) * 1.5 if spec.divergence is Divergence.PU else 1.0
    bregman = Bregman(spec.divergence, power=spec.power, lsif_constant=spec.lsif_constant)
    c = 1.0 / max(bins.bound / top, 1e-12) if spec.non_negative and bins.bound > 0 else 0.0
    w = w / top

    def ratio(parameters: Tensor, rows: Tensor) -> Tensor:
        raw = outputs(network, parameters[None], rows)[0, :, 0]
        if spec.divergence is Divergence.PU:
            return torch.sigmoid(raw).clamp(1e-6, 1.0 - 1e-6)
        return functional.softplus(raw) + FLOOR

    parameters = torch.as_tensor(initial_parameters(network, spec.seed), dtype=kind, device=train.device)
    parameters.requires_grad_(True)
    shrunk = torch.from_numpy(decayed_entries(network)).to(train.device, kind)
    optimiser = torch.optim.Adam([parameters], lr=spec.learning_rate)
    inside_tr, out_tr = _split(train, spec, "train", groups[0])
    inside_te, out_te = _split(test, spec, "test", groups[1])
    draws = rng.stream(spec.seed, "ratios", "batches")
    best, best_step, best_value = parameters.detach().clone(), 0, float("inf")
    held_w = w[out_te] * (total / top / float(w[out_te].sum()))
    since = 0
    for step in range(1, spec.num_steps + 1):
        rows = inside_tr[_draw(draws, len(inside_tr), spec.batch_size, train.device)]
        points = inside_te[_draw(draws, len(inside_te), spec.batch_size, train.device)]
        batch_w = w[points] * (total / top / float(w[points].sum()))
        optimiser.zero_grad()
        ratios = ratio(parameters, torch.cat([x[rows], xt[points]]))
        found = bregman.objective(ratios[: len(rows)], ratios[len(rows) :], batch_w, c)
        decay = spec.weight_decay / 2.0 * (shrunk * parameters.square()).sum()
        loss = (found.loss if spec.non_negative else found.plain) + decay
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        if step % _EVERY == 0 or step == spec.num_steps:
            with torch.no_grad():
                value = float(
                    bregman.objective(ratio(parameters, x[out_tr]), ratio(parameters, xt[out_te]), held_w, 0.0).plain
                )
            since += 1
            if value < best_value or spec.hold_out == 0.0:
                best, best_step, best_value, since = parameters.detach().clone(), step, value, 0
            elif since >= _PATIENCE:
                break

    level = total / top if spec.divergence is not Divergence.PU else min(total / top, 1.0 - 1e-6)
    with torch.no_grad():
        parts = [ratio(best, rows) for rows in (x[out_tr], xt[out_te], x)]
        kept = 1.0
        if spec.temper and spec.hold_out > 0:
            kept, best_value = _tempered(parts, level, lambda a, b: float(bregman.objective(a, b, held_w, 0.0).plain))
        r_tr, r_te = (level + kept * (part - level) for part in parts[:2])
        limit = bins.bound / top if bins.bound > 0 else float("inf")
        limits = r_tr.clamp(max=limit), r_te.clamp(max=limit)
        levels = torch.full_like(r_tr, level), torch.full_like(r_te, level)
        cut, constant = (float(bregman.objective(*pair, held_w, 0.0).plain) for pair in (limits, levels))

    def fitted(rows: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [ratio(best, phi(part).to(kind)).double() for part in torch.split(rows, 4096)]
        return (level + kept * (torch.cat(parts) - level)) * top

    note = "" if kept == 1.0 else f"its ratios keep {100 * kept:.0f} % of their distance from equal weights"
    return Fitted(bins, fitted, best_step, best_value, constant, cut, note and f"{note}, as rows held out prefer")


def _tempered(parts: list[Tensor], level: float, value: Callable[[Tensor, Tensor], float]) -> tuple[float, float]:
    """How much of their distance from a level ratios keep, and the held-out divergence then.

    Args:
        parts: Ratios at held-out training rows, at held-out test points, and at all training rows.
        level: The ratio that finds no shift.
        value: The divergence, of the first two.
    """
    found = []
    for kept in _KEPT:
        held_tr, held_te, whole = (level + kept * (part - level) for part in parts)
        if effective_sample_size(whole.cpu().numpy()) >= LEAST_EFFECTIVE * len(whole):
            found.append((value(held_tr, held_te), -kept))
    best, kept = min(found)
    return -kept, best


def _split(rows: Tensor, spec: RatioSpec, name: str, groups: Integers | None) -> tuple[Tensor, Tensor]:
    """Rows to fit, and rows held out, copies together; without any to hold out, all of them for both."""
    order = rng.stream(spec.seed, "ratios", "held out", name).permutation(len(rows))
    whole = torch.from_numpy(order).to(rows.device)
    if spec.hold_out == 0.0:
        return whole, whole
    count = min(max(1, round(spec.hold_out * len(rows))), len(rows) - 1)
    apart = keep_apart(order, units(rows.cpu().numpy(), groups), count)[order]
    if not apart.any():  # each row has more copies than are to be held out: nothing can be
        return whole, whole
    marked = torch.from_numpy(apart).to(rows.device)
    return whole[~marked], whole[marked]


def _draw(stream: rng.Stream, num: int, size: int, device: torch.device) -> Tensor:
    if size >= num:
        return torch.arange(num, device=device)
    return torch.from_numpy(stream.integers(num, size)).to(device)
