"""One ratio for all clients: test points over the mixture of all clients' training rows, from sums over rows.

r(x) = (1/L) Σ_l p_l^te(x) / Σ_k a_k p_k^tr(x), the a_k the clients' shares in means of training. It exists wherever the
clients *together* have rows, and is 1 where the mixture does not shift. By least squares it is a'φ(x) with
a = (H + ridge R)⁻¹ h, H = Σ_k a_k mean_tr,k φφ', h = (1/L) Σ_l mean_te,l φ. The first feature is the constant, which is
not penalised, so the mean of the ratio over the mixture is 1. Sums over folds are enough to fit and to choose: no row
leaves its site. Needs numpy and scipy alone.

Source: Kanamori, Hido & Sugiyama (2009), uLSIF; the balance heuristic of Veach & Guibas (1995) for the denominator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernfed.arrays import Floats, Integers
from kernfed.errors import DataError, InvalidReplyError
from kernfed.maths.triangles import unpack
from kernfed.methods.reweight.label_shift import label_ratios, priors, uncovered_share

NUM_FOLDS = 5
FACTORS = (0.25, 0.5, 1.0, 2.0)
"""Candidates for the lengthscale, times the clients' median distance."""
RIDGES = tuple(10.0**e for e in (-5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0))

NO_OVERLAP = 0.9
"""From this share of the test points on that no client's rows reach, there is no ratio to estimate."""
LEAST_EFFECTIVE = 0.05
"""Share of the rows that weighted rows must be worth."""
_REACH = 0.5
"""The factor of the lengthscale at which rows reach test points."""
_REACH_RIDGE = 1e-2
_NO_SHIFT = -0.5
"""The divergence of the ratio 1, which finds no shift."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of one client under one map, by fold. F folds, M features with the constant, T = M (M + 1)/2."""

    num_rows: Integers
    """Training rows, shape (F,)."""
    second_moments: Floats
    """Σ φφ' over them, as triangles, shape (F, T)."""
    num_points: Integers
    """Test points, shape (F,); zeros where the client gives none."""
    point_sums: Floats
    """Σ φ over them, shape (F, M)."""


@dataclass(frozen=True, slots=True)
class MixtureRatio:
    """A ratio that was fitted and chosen."""

    candidate: int
    """Place of its map among those that were tried."""
    ridge: float
    coefficients: Floats
    """a, shape (M,): of the constant first."""
    gain: float
    """By how much the divergence on held-out rows is lower than with equal weights, as a share; 0 or less: no shift."""
    uncovered: float
    """Share of the test points that no client's rows reach."""


def fit(maps: Sequence[Mapping[str, Sums]], shares: Mapping[str, float]) -> MixtureRatio:
    """Choose the lengthscale and the ridge by held-out rows, and fit the ratio on all.

    Args:
        maps: Sums by client under each map of `FACTORS`, in that order.
        shares: a_k of each client, up to a factor.

    Raises:
        DataError: No client gives test points, or nearly all lie where no training row of any client is.
    """
    if not any(sums.num_points.sum() for sums in maps[0].values()):
        raise DataError("no client gives test points for density ratios; each needs at least policy.min_rows of them")
    score, candidate, ridge = _NO_SHIFT, len(maps) - 1, RIDGES[-1]
    for i, sums in enumerate(maps):
        for one, found in zip(RIDGES, _held_out(sums, shares), strict=True):
            if found < score:
                score, candidate, ridge = found, i, one
    h, b = _pool(maps[candidate], shares)
    if score == _NO_SHIFT:  # nothing is better than equal weights, or rows are too few to hold any out
        coefficients = np.zeros(len(b))
        coefficients[0] = 1.0
    else:
        coefficients = _solve(h, b, ridge)
    uncovered = _unreached(maps[FACTORS.index(_REACH)], shares)
    if uncovered >= NO_OVERLAP:
        raise DataError(
            f"{100 * uncovered:.0f} % of the test points lie where no client has a training row: the supports do not "
            "overlap, and no weights can make up for that; use other columns"
        )
    return MixtureRatio(candidate, ridge, coefficients, -1.0 - 2.0 * score, uncovered)


def class_ratios(
    test_priors: Floats, counts: Mapping[str, Floats], shares: Mapping[str, float]
) -> tuple[Floats, dict[str, tuple[float, float]], float]:
    """Ratios of the classes' shares under label shift, to the mixture of all clients' training rows.

    Args:
        test_priors: Of the clients whose test points count, shape (L, C), each row on the simplex.
        counts: Training rows by class of each client in the mixture, shape (C,).
        shares: a_k of each client, up to a factor.

    Returns:
        The ratio of each class, shape (C,), 0 where no client has a row; each client's mean ratio, as bounds; and the
        share of test rows whose class no client has.

    Raises:
        DataError: No class of the test rows has a training row.
    """
    own = {c: priors(counts[c]) for c in sorted(counts)}
    whole = sum(shares[c] for c in own)
    mixture = sum((shares[c] / whole * prior for c, prior in own.items()), np.zeros(test_priors.shape[1]))
    test = test_priors.mean(axis=0)
    ratios = label_ratios(test[None], mixture)
    if not (ratios > 0).any():
        raise DataError("no client has a training row of a class that occurs among the test rows")
    means = {c: float(prior @ ratios) for c, prior in own.items()}
    return ratios, {c: (mean, mean) for c, mean in means.items()}, uncovered_share(test, mixture)


def mean_range(sums: Sums, coefficients: Floats) -> tuple[float, float]:
    """Bounds of a client's mean ratio, with values below 0 raised to 0: mean of a'φ, and root of its mean square."""
    total, rows = _whole(sums)
    square = max(0.0, float(coefficients @ total @ coefficients / rows))  # rounding may take it below 0
    return max(0.0, float(total[0] @ coefficients) / rows), math.sqrt(square)


def check(sums: Sums, num_features: int) -> None:
    """Refuse sums that no rows have: cosine features are at most sqrt(2/D), and second moments are not negative.

    Args:
        sums: Of one client.
        num_features: M, with the constant.

    Raises:
        InvalidReplyError: They cannot be.
    """
    top = max(1.0, (2.0 / max(1, num_features - 1)) ** 0.5) * (1.0 + 1e-6)
    for rows, triangle, points, first in zip(
        sums.num_rows, sums.second_moments, sums.num_points, sums.point_sums, strict=True
    ):
        slack = 1e-6 * max(1, int(rows))
        if (np.abs(triangle) > top**2 * rows + slack).any() or abs(triangle[0] - rows) > slack:
            raise InvalidReplyError(f"its second moments are not of {rows} rows")
        if (np.abs(first) > top * points + slack).any() or abs(first[0] - points) > 1e-6 * max(1, int(points)):
            raise InvalidReplyError(f"its sums of test points are not of {points} points")
        moment = unpack(triangle, num_features)
        moment[np.diag_indices(num_features)] += 1e-9 * (1.0 + rows)
        try:
            cho_factor(moment, lower=True, check_finite=False)
        except LinAlgError:
            raise InvalidReplyError("its second moments are negative in some direction") from None


def _whole(sums: Sums) -> tuple[Floats, float]:
    size = sums.point_sums.shape[1]
    return unpack(sums.second_moments.sum(axis=0), size), float(sums.num_rows.sum())


def _pool(sums: Mapping[str, Sums], shares: Mapping[str, float], folds: Floats | None = None) -> tuple[Floats, Floats]:
    """H and h over the rows of the folds that are marked, shape (F,), by 1; of the mixture of these rows."""
    size = next(iter(sums.values())).point_sums.shape[1]
    triangle, h = np.zeros(size * (size + 1) // 2), np.zeros(size)
    rows = points = 0.0
    for client in sorted(sums):
        own = sums[client]
        marked = np.ones(len(own.num_rows)) if folds is None else folds
        each = shares[client] / float(own.num_rows.sum())
        triangle += each * (marked @ own.second_moments)
        rows += each * float(marked @ own.num_rows)
        given = int(own.num_points.sum())
        if given:
            h += marked @ own.point_sums / given
            points += float(marked @ own.num_points) / given
    return unpack(triangle / rows, size) if rows else np.zeros((size, size)), h / points if points else h


def _held_out(sums: Mapping[str, Sums], shares: Mapping[str, float]) -> list[float]:
    """½ mean_tr r² - mean_te r on folds that were not fitted, mean over these folds, for each of `RIDGES`.

    For the true ratio mean_te r = mean_tr r². Where test points lie beyond all training rows, a function can be as high
    there as it likes, for no training row stands against it, and the divergence has no bound. So ratios with
    mean_te r above mean_tr r² (1 + root of mean_tr r²) count as no better than equal weights, and so do those whose
    weights are worth less than `LEAST_EFFECTIVE` of the rows: mean_tr r² is one over that share.
    """
    squares, levels = np.zeros(len(RIDGES)), np.zeros(len(RIDGES))
    num_folds = 0
    for fold in range(NUM_FOLDS):
        out = np.arange(NUM_FOLDS) == fold
        (h_in, b_in), (h_out, b_out) = (_pool(sums, shares, mask.astype(float)) for mask in (~out, out))
        if min(h_in[0, 0], b_in[0], h_out[0, 0], b_out[0]) < 0.5:  # the mass of a side without rows is 0, else 1
            continue
        num_folds += 1
        for i, ridge in enumerate(RIDGES):
            a = _solve(h_in, b_in, ridge)
            squares[i] += float(a @ h_out @ a)
            levels[i] += float(a @ b_out)
    if num_folds == 0:
        return [_NO_SHIFT] * len(RIDGES)
    squares, levels = squares / num_folds, levels / num_folds
    bears = (levels <= squares * (1.0 + np.sqrt(np.maximum(squares, 0.0)))) & (squares * LEAST_EFFECTIVE <= 1.0)
    return [float(s) for s in np.where(bears, squares / 2.0 - levels, _NO_SHIFT)]


def _solve(h: Floats, b: Floats, ridge: float) -> Floats:
    shifted = h.copy()
    places = np.arange(1, len(b))
    shifted[places, places] += ridge
    found: Floats = cho_solve(cho_factor(shifted, lower=True, check_finite=False), b)
    return found


def _unreached(sums: Mapping[str, Sums], shares: Mapping[str, float]) -> float:
    """Share of the test points' mean features that no weights of training rows make up for."""
    h, b = _pool(sums, shares)
    left = (h @ _solve(h, b, _REACH_RIDGE) - b)[1:]
    size = float(b[1:] @ b[1:])
    return min(1.0, float(left @ left) / size) if size > 0 else 1.0
