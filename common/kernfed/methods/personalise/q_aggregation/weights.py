"""Q-aggregation: weights over clients whose mixture of embeddings comes closest to a target's, for many targets.

For a target t with n rows, on the simplex,

    F(w) = |Σ w_k ν_k - ν_t|² + 2 w_t Tr Σ_t/n + C_Q n^-1/2 Σ w_k sqrt(q_k) + C_P (M/n) Σ w_k |ν_k - ν_t|.

With the Gram matrix G of the embeddings this is w'Gw + (b - 2 G_t)'w + G_tt: every target shares the same quadratic
part, so that a step for T targets is one product of (B, B) with (B, T).

Two solvers. `solve_paper` is Algorithm 3 with its printed step and number of steps; it stops well before the optimum,
and the paper's figures come from there. `solve_exact` finds the optimum, to a stated duality gap.

Source: Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging of kernel mean
embeddings", Algorithms 1 and 3. Two slips of the printed text are corrected: the linear term holds 2 Tr Σ_t/n, and the
normaliser of Algorithm 3 is Σ_j w_j exp(-η g_j).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats, Indices
from kernfed.errors import ConfigError, NotConvergedError
from kernfed.methods.personalise.embeddings import TargetTerms
from kernfed.methods.personalise.q_aggregation.paper import FEATURE_BOUND, PAPER_FACTOR, PAPER_STEPS
from kernfed.methods.personalise.q_aggregation.simplex import minimise_on_simplex

_EIGEN_CLIENTS = 128
"""Up to this many clients |A_t|_op is found by eigenvalues, above by power iteration for all targets at once."""

_CHECK_EVERY = 20
_FINISH_SMALL, _FINISH_AFTER = 100, 400
"""Steps after which targets are finished by an interior point: where few clients have a weight, and at last always."""
_SMALL = 50
_NARROW = 3
"""Attempts with few of the clients before all of them take part."""
_SMALLEST = 1e-300


@dataclass(frozen=True, slots=True)
class Constants:
    """Weights of the penalties."""

    c_q: float
    c_p: float


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Weights of T targets over B clients."""

    weights: Floats
    """Shape (B, T): columns on the simplex."""
    objective: Floats
    """F at the weights, shape (T,)."""
    gap: Floats
    """g'w - min g, at least F(w) - F*, shape (T,)."""
    steps: int


def default_constants(num_clients: int) -> Constants:
    """The rule of the paper's Sections 6.1 and 6.3: C_Q² = C_P = log B."""
    c_p = math.log(max(2, num_clients))
    return Constants(math.sqrt(c_p), c_p)


def linear_term(terms: TargetTerms, target: int, constants: Constants, bound: float = FEATURE_BOUND) -> Floats:
    """Compute b of F(w) = w'A w + b'w, shape (B,).

    Args:
        terms: Of the target.
        target: Its index.
        constants: C_Q and C_P, at least 0.
        bound: M, a bound of |φ(z)|.

    Raises:
        ConfigError: A constant is negative or not finite.

    Source: Algorithm 1.
    """
    for name, value in (("c_q", constants.c_q), ("c_p", constants.c_p)):
        if not 0 <= value < math.inf:
            raise ConfigError(f"method.{name} is {value}; give a number from 0 on")
    n = terms.num_rows
    b = constants.c_q / math.sqrt(n) * np.sqrt(np.maximum(terms.spread, 0.0))
    b += constants.c_p * (bound / n) * terms.distance
    b[target] += 2.0 * terms.trace / n
    return b


def objective(gram: Floats, targets: Indices, linear: Floats, weights: Floats) -> Floats:
    """Compute F for each target, shape (T,).

    Args:
        gram: <ν_k, ν_l>, shape (B, B).
        targets: Index of each target, shape (T,).
        linear: b of each target, shape (B, T).
        weights: Shape (B, T).
    """
    quadratic = np.einsum("bt,bt->t", weights, gram @ weights - 2.0 * gram[:, targets])
    value: Floats = quadratic + gram[targets, targets] + np.einsum("bt,bt->t", linear, weights)
    return value


def optimality_gap(gram: Floats, targets: Indices, linear: Floats, weights: Floats) -> Floats:
    """Compute g'w - min g for each target, shape (T,): an upper bound of F(w) - F*, 0 at the optimum alone."""
    g = 2.0 * (gram @ weights - gram[:, targets]) + linear
    gap: Floats = np.einsum("bt,bt->t", weights, g) - g.min(axis=0)
    clipped: Floats = np.maximum(gap, 0.0)
    return clipped


def solve_paper(
    gram: Floats, targets: Indices, linear: Floats, steps: int = PAPER_STEPS, factor: float = PAPER_FACTOR
) -> Aggregation:
    """Run Algorithm 3, exponentiated gradients with a look-ahead, from uniform weights.

    Gradients are formed without the constant that A_t adds to all of a target's entries: it leaves the steps as they
    are, and lets all targets share one matrix.

    Args:
        gram: <ν_k, ν_l>, shape (B, B).
        targets: Shape (T,).
        linear: b of each target, shape (B, T).
        steps: T of the paper.
        factor: c of its step.
    """
    eta = factor / (2.0 * _largest_eigenvalues(gram, targets) + np.abs(linear).max(axis=0))
    constant = linear - 2.0 * gram[:, targets]
    twice = 2.0 * gram
    w = np.full(linear.shape, 1.0 / gram.shape[0])
    for _ in range(steps):
        ahead = _tilt(w, twice @ w + constant, eta)
        w = _tilt(w, twice @ ahead + constant, eta)
    return _result(gram, targets, linear, w, steps)


def solve_exact(
    gram: Floats, targets: Indices, linear: Floats, *, tolerance: float = 1e-13, max_steps: int = 20_000
) -> Aggregation:
    """Find the optimum for each target.

    Accelerated projected gradients for all targets at once on the centred Gram matrix, whose largest eigenvalue is that
    of differences between clients alone; what has not converged after a hundred steps or some (nearly dependent
    embeddings) is finished target by target by an interior point.

    Args:
        gram: <ν_k, ν_l>, shape (B, B).
        targets: Shape (T,).
        linear: b of each target, shape (B, T).
        tolerance: Largest gap, relative to the largest entry of `gram` and `linear`.
        max_steps: Most steps.

    Returns:
        Weights; where the optimum is not unique, clients with the same embedding and penalty share alike.

    Raises:
        NotConvergedError: A gap is still above the tolerance.
    """
    num_clients = gram.shape[0]
    # F is homogeneous: gram and linear term in other units have the same weights. In units of the largest entry all
    # sums below are about 1, and so is the row of ones that holds the weights' sum.
    unit = max(float(np.abs(gram).max()), float(np.abs(linear).max()), _SMALLEST)
    scaled, scaled_linear = gram / unit, linear / unit
    mean = scaled.mean(axis=0)
    centred = scaled - mean[:, None] - mean[None, :] + mean.mean()
    constant = scaled_linear - 2.0 * centred[:, targets]
    constant -= constant.mean(axis=0)
    limit = tolerance * np.maximum(1.0, np.abs(constant).max(axis=0))
    lipschitz = 2.0 * float(np.linalg.eigvalsh(centred)[-1])
    w = np.full(linear.shape, 1.0 / num_clients)
    if lipschitz <= 0.0:  # all embeddings are one: F is linear
        lipschitz = max(1e-300, float(np.abs(constant).max()))
    twice = 2.0 * centred
    steps = 0
    at = np.arange(len(targets))  # those that are not done
    now, ahead, momentum = w, w, np.ones(len(targets))
    while steps < max_steps and at.size:
        g = twice @ ahead + constant[:, at]
        new = project_to_simplex(ahead - g / lipschitz)
        # Where the last move points against the gradient step, momentum starts anew (O'Donoghue & Candès 2015).
        restart = np.einsum("bt,bt->t", ahead - new, new - now) > 0
        momentum[restart] = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * np.square(momentum))) / 2.0
        ahead = new + (momentum - 1.0) / following * (new - now)
        now, momentum = new, following
        steps += 1
        if steps % _CHECK_EVERY == 0:
            if steps % _FINISH_SMALL == 0:
                far = _gap(twice, constant[:, at], now) > limit[at]
                if steps % _FINISH_AFTER != 0:
                    far &= (now > 0).sum(axis=0) <= _SMALL
                for i in np.flatnonzero(far):
                    found = _finish(twice, constant[:, at[i]], now[:, i], limit[at[i]])[:, None]
                    column = constant[:, at[[i]]]
                    if _gap(twice, column, found)[0] < _gap(twice, column, now[:, [i]])[0]:
                        now[:, i] = found[:, 0]
                ahead = now.copy()
            w[:, at] = now
            far = _gap(twice, constant[:, at], now) > limit[at]
            if not far.all():
                at, now, ahead, momentum = at[far], now[:, far], ahead[:, far], momentum[far]
    w[:, at] = now
    gap = _gap(twice, constant, w)
    if (gap > limit).any():
        worst = int(np.argmax(gap - limit))
        raise NotConvergedError(
            f"Q-aggregation of target {int(targets[worst])} is {gap[worst]:.3g} of its largest term from its optimum "
            f"after {steps} steps, want {limit[worst]:.3g}; use fewer clients, or a kernel with a larger lengthscale"
        )
    return _result(gram, targets, linear, w, steps)


def _finish(quadratic: Floats, linear: Floats, near: Floats, limit: float) -> Floats:
    """The optimum by an interior point, first among clients that have a weight already or a small slope, then all."""
    w = near
    for _ in range(_NARROW):
        g = quadratic @ w + linear
        few = 2 * int((w > 0).sum()) + 10
        if 2 * few >= len(linear):
            break
        some = np.flatnonzero((w > 0) | (g <= np.partition(g, few)[few]))
        w = np.zeros(len(linear))
        w[some] = minimise_on_simplex(quadratic[np.ix_(some, some)], linear[some], limit)
        if _gap(quadratic, linear[:, None], w[:, None])[0] <= limit:
            return w
    return minimise_on_simplex(quadratic, linear, limit)


def project_to_simplex(v: Floats) -> Floats:
    """Project each column of v, shape (B, T), onto the simplex.

    Source: Held, Wolfe & Crowder (1974).
    """
    num, count = v.shape
    descending = -np.sort(-v, axis=0)
    sums = np.cumsum(descending, axis=0)
    ranks = np.arange(1, num + 1)[:, None]
    kept = (descending * ranks > sums - 1.0).sum(axis=0)
    threshold = (sums[kept - 1, np.arange(count)] - 1.0) / kept
    projected: Floats = np.maximum(v - threshold, 0.0)
    projected /= projected.sum(axis=0)
    return projected


def _tilt(w: Floats, g: Floats, eta: Floats) -> Floats:
    """w_i exp(-η g_i) / Σ_j w_j exp(-η g_j), per column."""
    tilted: Floats = w * np.exp(-eta * (g - g.min(axis=0)))
    tilted /= tilted.sum(axis=0)
    return tilted


def _gap(twice: Floats, constant: Floats, w: Floats) -> Floats:
    g = twice @ w + constant
    gap: Floats = np.einsum("bt,bt->t", w, g) - g.min(axis=0)
    return gap


def _largest_eigenvalues(gram: Floats, targets: Indices) -> Floats:
    """|A_t|_op for A_t = Gram matrix of (ν_k - ν_t)_k, shape (T,)."""
    num = gram.shape[0]
    if num <= _EIGEN_CLIENTS:
        found = np.empty(len(targets))
        for i, t in enumerate(targets):
            a = gram - gram[:, [t]] - gram[[t], :] + gram[t, t]
            found[i] = np.linalg.eigvalsh(a)[-1]
        return np.maximum(found, 0.0)
    columns = gram[:, targets]
    v = np.full((num, len(targets)), num**-0.5)
    values = np.zeros(len(targets))
    for _ in range(500):
        product, sums = gram @ v, v.sum(axis=0)
        product -= columns * sums
        product -= product[targets, np.arange(len(targets))]
        norms = np.linalg.norm(product, axis=0)
        done = np.abs(norms - values) <= 1e-13 * norms
        values = norms
        if done.all():
            break
        v = product / np.where(norms > 0, norms, 1.0)
    return values


def _result(gram: Floats, targets: Indices, linear: Floats, w: Floats, steps: int) -> Aggregation:
    value, gap = objective(gram, targets, linear, w), optimality_gap(gram, targets, linear, w)
    return Aggregation(w, value, gap, steps)
