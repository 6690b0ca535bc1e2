"""One ridge per kernel on the rows of all clients: statistics of a round's rows, their sums, and a client's copy.

For each kernel the statistics of rows with features z are H = Σ l''(f) z z' and b = Σ (l''(f) f - l'(f)) z: for the
squared loss 2 Σ z z' and 2 Σ y z, else the loss's second-order expansion at the prediction f that was made before the
row, an online Newton step. They travel as the triangular factor R of the rows [z, target], where R'R holds H and b:
the same information in fewer numbers, as a round has fewer rows than features.

The coordinator adds up what clients send, once for each memory of `KEEPS`, and gives back (H + 2 λ I)^-1 b. Within a
round a client moves its copy by its own rows. The inverse Hessian that this takes is the one of the ridge on its own
rows alone, over the rows that all clients have for one of its own: where clients are alike that is the pooled one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats, Indices
from kernfed.errors import InvalidTensorError
from kernfed.maths import triangles
from kernfed.methods.online.losses import LOSSES, Loss, StreamLoss

KEEPS = (1.0, 0.99)
"""Share of the past that the pooled ridges keep per row: for ever, and about 100 rows, so that drift is followed."""
RIDGE = 0.03
"""λ of loss + λ |theta|², of ridges on pooled rows and on a client's own."""

_LEAST_BEND = 0.02
"""Second derivatives of the loss below this count as this: the target of the expansion would leave all bounds."""
_MOST_LOG_ODDS = 30.0


def packed_size(num_rows: int, num_features: int) -> int:
    """Numbers in the factor of so many rows, for each kernel: never more than the triangle of H, and b."""
    rows = min(num_rows, num_features)
    return rows * (num_features + 1) - rows * (rows - 1) // 2


def factor(z: Floats, y: Floats, f: Floats, loss: StreamLoss) -> Floats:
    """Statistics of rows as packed triangular factors.

    Args:
        z: Features of at least one row, (n, N, F).
        y: Targets in the learner's scale, (n,).
        f: Predictions of each kernel's ridge that forgets nothing, (n, N).
        loss: Of the job.

    Returns:
        For each kernel the rows of R one after another, each from its diagonal on, (N, `packed_size`).
    """
    n, _, num_features = z.shape
    held = np.clip(f, -_MOST_LOG_ODDS, _MOST_LOG_ODDS) if loss is LOSSES[Loss.LOGISTIC] else f
    bend = np.maximum(loss.bend(held), _LEAST_BEND)
    root = np.sqrt(bend)
    target = (bend * held - loss.slope(held, y[:, None])) / root
    rows = np.concatenate([root[..., None] * z, target[..., None]], axis=2).transpose(1, 0, 2)
    whole: Floats = np.asarray(np.linalg.qr(rows, mode="r"))
    r = whole[:, : min(n, num_features)]
    signs = np.where(np.diagonal(r, axis1=1, axis2=2) < 0.0, -1.0, 1.0)  # so that R says no more than H and b
    at = _places(r.shape[1], num_features + 1)
    packed: Floats = (signs[..., None] * r)[:, at[0], at[1]]
    return packed


def unpack(packed: Floats, num_rows: int, num_features: int) -> Floats:
    """Factors (N, min(n, F), F + 1) from `factor`'s result.

    Raises:
        InvalidTensorError: It is that of another number of rows.
    """
    rows = min(num_rows, num_features)
    if packed.shape[1] != packed_size(num_rows, num_features):
        raise InvalidTensorError(
            f"a factor of {packed.shape[1]} numbers for {num_rows} rows, want {packed_size(num_rows, num_features)}"
        )
    r = np.zeros((len(packed), rows, num_features + 1))
    at = _places(rows, num_features + 1)
    r[:, at[0], at[1]] = packed
    return r


@functools.lru_cache(maxsize=8)
def _places(rows: int, columns: int) -> tuple[Indices, Indices]:
    """Rows and columns of the entries from the diagonal on."""
    return np.triu_indices(rows, 0, columns)


def most_target(loss: Loss, spans: float) -> float:
    """Largest size of a target in a factor.

    Args:
        loss: Of the job.
        spans: How far beyond [0, 1] targets may lie; 0: there is no limit.
    """
    if loss is Loss.LOGISTIC:
        return (_LEAST_BEND * _MOST_LOG_ODDS + 1.0) / math.sqrt(_LEAST_BEND)
    return math.sqrt(LOSSES[loss].curvature) * (1.0 + spans) if spans else math.inf


def contradiction(factors: Floats, num_rows: int, loss: Loss, spans: float) -> str:
    """Say what no rows can have in the factors that a client sent; empty: nothing.

    Features have norm 1 beside their constant 1, so the squares of a factor add up to 2 l'' at most for each row.

    Args:
        factors: Of one client, (N, r, F + 1).
        num_rows: Rows behind them.
        loss: Of the job.
        spans: As for `most_target`.
    """
    size = np.square(factors[..., :-1]).sum(axis=(1, 2)).max()
    most = 2.0 * LOSSES[loss].curvature * num_rows
    if not size <= most * (1.0 + 1e-6):
        return f"features of size {size:.3g}, where {num_rows} rows have at most {most:.3g}"
    target = np.sqrt(np.square(factors[..., -1]).sum(axis=1).max())
    allowed = most_target(loss, spans) * math.sqrt(num_rows)
    if not target <= allowed * (1.0 + 1e-6):
        return f"targets of size {target:.3g}, where {num_rows} rows have at most {allowed:.3g}"
    return ""


@dataclass(frozen=True, slots=True)
class PooledRidges:
    """Statistics of the rows of all clients. J memories, N kernels, F features."""

    hessian: Floats
    """(J, N, F, F)."""
    moment: Floats
    """(J, N, F)."""
    rows: Floats
    """Rows behind them, (J,)."""
    total: int = 0
    """Rows that were ever added."""

    @staticmethod
    def start(num_kernels: int, num_features: int) -> PooledRidges:
        """No rows."""
        shape = (len(KEEPS), num_kernels, num_features)
        return PooledRidges(np.zeros((*shape, num_features)), np.zeros(shape), np.zeros(len(KEEPS)))

    def add(self, factors: Mapping[str, Floats], num_rows: Mapping[str, int]) -> PooledRidges:
        """Add a round.

        Args:
            factors: Of each client, (N, r, F + 1), in the order of their names; at least one.
            num_rows: Behind each.
        """
        rows = sum(num_rows[client] for client in factors)
        stacked = np.concatenate(list(factors.values()), axis=1)
        z = stacked[..., :-1]
        hessian = np.swapaxes(z, 1, 2) @ z
        moment = np.einsum("nrf,nr->nf", z, stacked[..., -1])
        keep = np.array([keep ** (rows / len(factors)) for keep in KEEPS])
        return PooledRidges(
            keep[:, None, None, None] * self.hessian + hessian,
            keep[:, None, None] * self.moment + moment,
            keep * self.rows + rows,
            self.total + rows,
        )

    def solve(self, regularisation: float = 0.0) -> Floats:
        """Parameters (J, N, F): least loss + (λ + regularisation · rows) |theta|²."""
        weight = 2.0 * (RIDGE + regularisation * self.rows)
        ridge = weight[:, None, None, None] * np.eye(self.moment.shape[-1])
        return np.asarray(np.linalg.solve(self.hessian + ridge, self.moment[..., None])[..., 0], dtype=np.float64)

    def to_arrays(self) -> dict[str, Floats]:
        """All of it, for a checkpoint."""
        j, n, f = self.moment.shape
        packed = [triangles.pack(h) for h in self.hessian.reshape(-1, f, f)]
        return {
            "hessian": np.stack(packed).reshape(j, n, -1),
            "moment": self.moment,
            "pooled_rows": np.append(self.rows, self.total),
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, Floats]) -> PooledRidges:
        """The state from `to_arrays`' result."""
        moment, rows = arrays["moment"], arrays["pooled_rows"]
        j, n, f = moment.shape
        full = [triangles.unpack(t, f) for t in arrays["hessian"].reshape(j * n, -1)]
        return PooledRidges(np.stack(full).reshape(j, n, f, f), moment, rows[:-1], int(rows[-1]))


@dataclass(frozen=True, slots=True)
class CommonRidges:
    """A client's copy of the pooled parameters, which its own rows move until the next round brings new ones."""

    theta: Floats
    """(J, N, F)."""
    rows: Floats
    """Rows of all clients behind the parameters, (J,)."""

    def predict(self, z: Floats) -> Floats:
        """Predictions of a row's features (N, F), memory by memory, shape (J N,)."""
        f: Floats = np.einsum("nf,jnf->jn", z, self.theta).reshape(-1)
        return f

    def update(self, pull: Floats, z: Floats, slope: Floats, bend: Floats, own_rows: int) -> CommonRidges:
        """Learn from a row of this client.

        Args:
            pull: Inverse Hessian of the ridges on its own rows, times z, (N, F).
            z: Features, (N, F).
            slope: First derivative of the loss at the predictions, (J N,).
            bend: Second derivative, (J N,).
            own_rows: Rows behind the inverse Hessian.
        """
        shape = self.theta.shape[:2]
        share = np.maximum(1.0, (self.rows + 1.0) / (own_rows + 1.0))[:, None]
        along = np.einsum("nf,nf->n", z, pull)
        rate = slope.reshape(shape) / (share + bend.reshape(shape) * along)
        return CommonRidges(self.theta - rate[..., None] * pull, self.rows)
