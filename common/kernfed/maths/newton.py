"""The coordinator's half of FedNewton on ridge problems: the paper's step, and one that cannot diverge.

Client j has H_j = Z_j'Z_j/n_j + ridge I and c_j; p_j = n_j/n. H = Σ p_j H_j, P = Σ p_j H_j⁻¹, c = Σ p_j c_j, and the
pooled solution is W* = H⁻¹ c. Clients send H_j⁻¹ R and H_j Z; here are the sums over clients, M features, C outputs.

Certificate: P - H⁻¹ is positive semidefinite (the inverse is operator convex), so with the residual R = H W - c the
distance |W - W*|_H = sqrt(tr R'H⁻¹R) is at most sqrt(tr R'P R), which costs nothing when P R is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.errors import DivergedError, InvalidReplyError, NumericalError

EPS_FLOAT64 = 2.2e-16
"""Rounding of messages in float64."""


@dataclass(slots=True)
class PaperNewton:
    """The FedNewton paper's iteration W ← W - P (H W - c), Algorithm 1, watched by its certificate.

    The error multiplies by I - P H. All eigenvalues of P H are at least 1, so the iteration converges only if the
    largest is below 2, and the certificate then falls in every round; when it rises, the iteration diverges. That
    holds while the same clients answer in every round.
    """

    weights: Floats
    """W, shape (M, C); at first Σ p_j W_j, the average of the clients' own solutions."""
    moment: Floats
    """c, shape (M, C)."""
    bound: float = math.inf
    """Certificate: an upper bound of |W - W*|_H before the last step; infinity before the first."""
    relative_bound: float = math.inf
    """`bound` over |W|_H."""
    num_steps: int = 0
    eps: float = EPS_FLOAT64
    """Rounding of the messages; a certificate below its root, relative to |W|_H, may rise."""

    def absorb(self, gradient: Floats, newton_step: Floats) -> None:
        """Take a step.

        Args:
            gradient: Global gradient R = Σ p_j (H_j W - c_j) at `weights`, shape (M, C).
            newton_step: Σ p_j H_j⁻¹ R, shape (M, C).

        Raises:
            DivergedError: The certificate rose, with the reason and the remedy. The state is that before this step.
        """
        bound = _certificate(gradient, newton_step)
        relative = _relative(bound, self.weights, gradient, self.moment)
        if bound > self.bound and relative > math.sqrt(self.eps):
            growth = bound / self.bound if self.bound > 0 else math.inf
            raise DivergedError(
                f"the paper's Newton step moves away from the pooled solution: after step {self.num_steps} the bound "
                f"on the distance rose from {self.bound:.3g} to {bound:.3g} ({relative:.3g} of the weights). The mean "
                f"inverse Hessian overshoots: the largest eigenvalue of P H is at least {1 + growth:.3g}, and the step "
                "converges only below 2. Clients have too few rows for this many features, or differ too much "
                '(label skew). Use step = "auto", which cannot diverge, a larger ridge, or fewer features'
            )
        self.bound, self.relative_bound = bound, relative
        self.weights = self.weights - newton_step
        self.num_steps += 1

    def to_arrays(self) -> dict[str, Floats]:
        """Give the whole state as arrays, from which `from_arrays` continues bit for bit."""
        scalars = np.array([self.bound, self.relative_bound, float(self.num_steps), self.eps])
        return {"weights": self.weights, "moment": self.moment, "scalars": scalars}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> PaperNewton:
        """Rebuild a state that `to_arrays` gave."""
        bound, relative, num_steps, eps = (float(v) for v in arrays["scalars"])
        return cls(_matrix(arrays["weights"]), _matrix(arrays["moment"]), bound, relative, int(num_steps), eps)


@dataclass(slots=True)
class BlockConjugateGradients:
    """Conjugate gradients on H W = c for all outputs at once, preconditioned by the paper's own averaged Newton step.

    An iteration is two trips: the residual goes to the clients and comes back as Z = Σ p_j H_j⁻¹ R (`bound` then tells
    how far W is), Z goes and comes back as Σ p_j H_j Z (`absorb`). W is the minimiser of the pooled objective over the
    span of all directions so far, so its value never rises, whatever the preconditioner: it may come from a part of
    the clients. The products with H must come from all.

    The state is kept as float64 arrays, 2 M r numbers for r directions so far.

    Source: O'Leary (1980), block conjugate gradients, here with full orthogonalisation; FedNewton paper, line 7 of
    Algorithm 1.
    """

    weights: Floats
    """W, shape (M, C)."""
    residual: Floats
    """R = H W - c, shape (M, C)."""
    moment: Floats
    """c, shape (M, C)."""
    basis: Floats = field(repr=False)
    """V, shape (M, r), with V'H V = I."""
    basis_image: Floats = field(repr=False)
    """H V, shape (M, r)."""
    eps: float = EPS_FLOAT64
    """Rounding of the messages; directions with H-norm² below its root, after projection, are noise."""
    stalled_at: float = math.inf
    """Certificate, relative, at which directions ran out before; see `stalls`."""

    @classmethod
    def start(
        cls, weights: Floats, product: Floats, moment: Floats, eps: float = EPS_FLOAT64
    ) -> BlockConjugateGradients:
        """Start from the minimiser over the span of W0's columns.

        Args:
            weights: W0 = Σ p_j H_j⁻¹ c_j, shape (M, C) (the one-shot average, DKRR).
            product: H W0, shape (M, C).
            moment: c, shape (M, C).
            eps: Rounding of the messages, as `Cohort.float_epsilon` has it.

        Raises:
            InvalidReplyError: Shapes differ.
            NumericalError: W0 or H W0 holds NaN or infinity.
        """
        c = np.array(moment, dtype=np.float64, order="C")
        empty = np.empty((c.shape[0], 0))
        state = cls(np.zeros_like(c), -c, c, empty, empty, eps)
        state.absorb(weights, product)
        return state

    def bound(self, newton_step: Floats) -> float:
        """Compute the certificate sqrt(tr R'Z), an upper bound of |W - W*|_H.

        Args:
            newton_step: Z = Σ p_j H_j⁻¹ R, shape (M, C), from all clients (with a part of them it is an estimate).

        Raises:
            NumericalError: It is not a number, or clearly negative: the products are not those of positive matrices.
        """
        return _certificate(self.residual, newton_step)

    def relative_bound(self, newton_step: Floats) -> float:
        """Compute `bound` over |W|_H = sqrt(tr W'(R + c)); infinity at W = 0 unless the bound is 0."""
        return _relative(self.bound(newton_step), self.weights, self.residual, self.moment)

    def absorb(self, direction: Floats, product: Floats) -> int:
        """Minimise the pooled objective over the span of the directions so far and these.

        Args:
            direction: Z, shape (M, C).
            product: H Z = Σ p_j H_j Z, shape (M, C), from all clients.

        Returns:
            How many new directions there were; 0: W did not change, and no further trip will change it.

        Raises:
            InvalidReplyError: Shapes differ.
            NumericalError: Z or H Z holds NaN or infinity.
        """
        z, hz = _matrix(direction), _matrix(product)
        if z.shape != self.weights.shape or hz.shape != self.weights.shape:
            raise InvalidReplyError(f"directions {z.shape} and products {hz.shape}, want {self.weights.shape}")
        return self._extend(z, hz)

    def _extend(self, z: Floats, hz: Floats) -> int:
        """See `absorb`; any number of directions."""
        q, hq = self._orthonormalise(z, hz)
        step = q.T @ self.residual
        self.weights = self.weights - q @ step
        self.residual = self.residual - hq @ step
        self.basis = np.concatenate([self.basis, q], axis=1)
        self.basis_image = np.concatenate([self.basis_image, hq], axis=1)
        return int(q.shape[1])

    def stalls(self, relative_bound: float) -> bool:
        """Whether rounding allows no more, where directions ran out at this certificate.

        The residual that the iteration carries along drifts from the true one by rounding. Where the certificate fell
        to half since directions ran out before, a residual computed anew (`restarted`) may give more.
        """
        return not relative_bound < 0.5 * self.stalled_at

    def restarted(self, product: Floats, relative_bound: float) -> BlockConjugateGradients:
        """Go on from W with a residual computed anew, and no directions.

        Args:
            product: H W, shape (M, C), from all clients.
            relative_bound: The certificate at W, as far as it is known.
        """
        state = self.start(self.weights, product, self.moment, self.eps)
        state.stalled_at = relative_bound
        return state

    def shifted(self, by: float) -> BlockConjugateGradients:
        """The minimiser over the same directions with `by` added to the ridge: no trip is needed, as H Z is known.

        Source: Galerkin's condition, on a space that does not hang on the shift.
        """
        empty = self.basis[:, :0]
        state = BlockConjugateGradients(np.zeros_like(self.weights), -self.moment, self.moment, empty, empty, self.eps)
        state._extend(self.basis, self.basis_image + by * self.basis)
        return state

    def to_arrays(self) -> dict[str, Floats]:
        """Give the whole state as arrays, from which `from_arrays` continues bit for bit."""
        return {
            "weights": self.weights,
            "residual": self.residual,
            "moment": self.moment,
            "basis": self.basis,
            "basis_image": self.basis_image,
            "eps": np.array([self.eps]),
            "stalled_at": np.array([self.stalled_at]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> BlockConjugateGradients:
        """Rebuild a state that `to_arrays` gave."""
        names = ("weights", "residual", "moment", "basis", "basis_image")
        w, r, c, v, hv = (_matrix(arrays[name]) for name in names)
        stalled_at = float(arrays["stalled_at"][0]) if "stalled_at" in arrays else math.inf
        return cls(w, r, c, v, hv, float(arrays["eps"][0]), stalled_at)

    def _orthonormalise(self, z: Floats, hz: Floats) -> tuple[Floats, Floats]:
        """H-orthonormal basis Q of what Z adds to the basis, and H Q."""
        if not (np.isfinite(z).all() and np.isfinite(hz).all()):
            raise NumericalError("a search direction holds NaN or infinity; check the clients' features and ridge")
        squares = np.einsum("mc,mc->c", z, hz)
        scale = np.zeros_like(squares)
        np.divide(1.0, np.sqrt(squares, where=squares > 0, out=scale), where=squares > 0, out=scale)
        z, hz = z * scale, hz * scale
        for _ in range(2):
            overlap = self.basis_image.T @ z
            z = z - self.basis @ overlap
            hz = hz - self.basis_image @ overlap
        product = z.T @ hz
        values, vectors = np.linalg.eigh((product + product.T) / 2)
        kept = values > math.sqrt(self.eps)
        turn = vectors[:, kept] / np.sqrt(values[kept])
        return z @ turn, hz @ turn


_ROUNDING = 1e-6
"""Of inner products, relative to the norms of what they are of; messages may have been rounded to float32."""


_FITS = 1e-4
"""Of what a client's product and its own solution say of each other, relative to the norms of all that is in it."""


_NEAR = 1e-3
"""Of a distance to a client's own solution, relative to its size: below it, rounding decides what points where."""


def not_a_solve(direction: Floats, solution: Floats, ridge: float = 0.0) -> Iterator[str]:
    """Say why Z cannot be H⁻¹ G for any symmetric H with eigenvalues of at least `ridge`.

    Args:
        direction: G.
        solution: Z, of the same shape.
        ridge: 0: H is any positive definite matrix.
    """
    along, asked, size = _inner(direction, solution)
    if along < -_ROUNDING * asked * size:
        yield "states a solve that points against its right-hand side, as no positive Hessian has it"
    elif ridge * size > 1.001 * asked:
        yield f"states a solve of norm {size:.3g}, where the ridge allows {asked / ridge:.3g} at most"


def not_a_product(direction: Floats, product: Floats, ridge: float = 0.0) -> Iterator[str]:
    """Say why H Z cannot be the product of a Z with any symmetric H with eigenvalues of at least `ridge`.

    Args:
        direction: Z.
        product: H Z, of the same shape.
        ridge: 0: H is any positive definite matrix.
    """
    along, size, found = _inner(direction, product)
    if along < 0.999 * ridge * size**2 - _ROUNDING * size * found:
        yield "states a Hessian product that is smaller along its direction than the ridge makes it"


def not_of_its_start(own: Floats, moment: Floats, direction: Floats, product: Floats) -> Iterator[str]:
    """Say why H Z cannot be of the H with H W_j = c_j: of a symmetric one, W_j'(H Z) is c_j'Z.

    Args:
        own: W_j, shape (M, C): the client's own solution.
        moment: c_j, the same shape.
        direction: Z, shape (M, N).
        product: H Z, the same shape.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        w, c, z, hz = (np.asarray(array, dtype=np.float64) for array in (own, moment, direction, product))
        away = float(np.linalg.norm(w.T @ hz - c.T @ z))
        most = float(np.linalg.norm(w) * np.linalg.norm(hz) + np.linalg.norm(c) * np.linalg.norm(z))
    if away > _FITS * most:
        yield (
            f"states a product, or a solve, that is not of the problem of its own solution: {away:.3g} lies between "
            f"what both say of each other, and rounding explains {_FITS * most:.3g}"
        )


def not_a_gradient(at: Floats, own: Floats, gradient: Floats, ridge: float, most: float = math.inf) -> Iterator[str]:
    """Say why G cannot be H (W - W_j) for any symmetric H with eigenvalues from `ridge` to `most`.

    The gradient of a quadratic with its minimum at W_j: ⟨W - W_j, G⟩ is at least ridge |W - W_j|², and |G|²/most. Where
    W is W_j but for rounding nothing is said.

    Args:
        at: W.
        own: W_j, of the same shape.
        gradient: G, of the same shape.
        ridge: Above 0.
        most: Infinity: nothing is known.
    """
    away = np.subtract(at, own, dtype=np.float64)
    along, size, found = _inner(away, gradient)
    if not size > _NEAR * float(np.linalg.norm(own)):
        return
    least = max(ridge * size**2, found**2 / most)
    if along < 0.9 * least - _NEAR * size * found:
        yield (
            f"states a gradient of norm {found:.3g} that does not fit its own solution: along the way from there it is "
            f"{along:.3g}, and {least:.3g} at least"
        )


def _inner(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Inner product of two matrices, and their norms; infinite where these leave the range of numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.vdot(a, b)), float(np.linalg.norm(a)), float(np.linalg.norm(b))


def _certificate(residual: Floats, newton_step: Floats) -> float:
    if newton_step.shape != residual.shape:
        raise InvalidReplyError(f"Newton step of shape {newton_step.shape}, want {residual.shape}")
    square = float(np.vdot(residual, newton_step))
    rounding = float(np.linalg.norm(residual) * np.linalg.norm(newton_step))
    if not math.isfinite(square) or square < -1e-6 * rounding:
        raise NumericalError(
            f"the certificate tr R'PR is {square:g}, but must be at least 0; a client's Newton step is not a "
            "solve with its Hessian"
        )
    return math.sqrt(max(square, 0.0))


def _relative(bound: float, weights: Floats, residual: Floats, moment: Floats) -> float:
    if bound == 0:
        return 0.0
    square = float(np.vdot(weights, residual + moment))
    return bound / math.sqrt(square) if square > 0 else math.inf


def _matrix(array: npt.NDArray[np.floating]) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float64)
