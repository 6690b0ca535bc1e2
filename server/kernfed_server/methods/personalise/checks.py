"""Replies that no rows give, by what the coordinator asked for; what a reply contradicts by itself its message says."""

from __future__ import annotations

from collections.abc import Iterator

from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import EXACT_KERNELS, MOST_SQUARE, RANDOM_KERNELS, Kernel
from kernfed.maths.aggregate import norm
from kernfed.maths.triangles import unpack
from kernfed.methods.personalise.messages import ClientEmbedding, EmbedRequest, Statistics
from kernfed.methods.personalise.q_aggregation import FEATURE_BOUND
from kernfed.methods.personalise.training_messages import PersonalStart

_ROUNDING = 1e-3


def check_embedding(reply: ClientEmbedding, request: EmbedRequest) -> None:
    """Refuse an embedding that no rows have: features of a bounded kernel have norms of at most `FEATURE_BOUND`.

    Raises:
        InvalidReplyError: Its mean or its trace is larger. Noise has no bound, and is not held to any.
    """
    if request.features.kernel in EXACT_KERNELS or request.noise_factor > 0:
        return
    most = FEATURE_BOUND * (1.0 + 1e-4)  # numbers may have travelled in float32
    if norm(reply.mean) > most:
        raise InvalidReplyError(f"a mean embedding of norm {norm(reply.mean):.3g}, which is at most {most:.3g}")
    spread = 2.0 * most**2  # n/(n - 1) times the mean of |phi|^2, of two rows or more
    if reply.trace > spread:
        raise InvalidReplyError(f"an embedding of rows that vary by {reply.trace:.3g}, which is at most {spread:.3g}")


def impossible_statistics(reply: Statistics, kernel: Kernel, *, constant: bool) -> str:
    """Say why normal equations of all inputs are of no rows; empty: they may be.

    The mean square of the constant is 1, and that of random features has a bound.

    Args:
        reply: Of a client.
        kernel: Of the feature map.
        constant: Whether the first input is the constant.
    """
    squares = unpack(reply.gram, len(reply.moment)).diagonal()
    if constant and abs(squares[0] - 1.0) > _ROUNDING:
        return f"the constant has a mean square of {squares[0]:.6g} in its normal equations, which is 1"
    features = float(squares[int(constant) :].sum())
    if kernel in RANDOM_KERNELS and features > MOST_SQUARE * (1.0 + _ROUNDING):
        return f"features have a mean square of {features:.3g} in its normal equations, at most {MOST_SQUARE:g}"
    return ""


def impossible_start(reply: PersonalStart, known: Statistics) -> Iterator[str]:
    """Say why a client's moment of the problem with an intercept does not fit its normal equations of all inputs.

    Args:
        reply: Of the client.
        known: Its normal equations.
    """
    if reply.moment.shape != known.moment.shape:
        return
    apart = norm(reply.moment - known.moment)
    if apart > _ROUNDING * norm(known.moment):
        yield f"states a moment that is {apart:.3g} away from the one in its normal equations"
