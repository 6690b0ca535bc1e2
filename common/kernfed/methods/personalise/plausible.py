"""What no rows give, by what was asked for, in replies and in what a job kept of them.

What a reply contradicts by itself its message says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import EXACT_KERNELS, MOST_SQUARE, RANDOM_KERNELS, Kernel
from kernfed.federation.ledger import Ledger
from kernfed.federation.messages.base import Stated
from kernfed.maths.aggregate import norm
from kernfed.maths.triangles import unpack
from kernfed.methods.personalise.embedding_messages import ClientEmbedding
from kernfed.methods.personalise.messages import Statistics, StatisticsRequest
from kernfed.methods.personalise.q_aggregation.paper import FEATURE_BOUND
from kernfed.methods.personalise.training_messages import PersonalStart

_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Kernels:
    """By which clients' parts were made."""

    features: Kernel | None
    """Of the inputs of normal equations; None: these are of directions, and have no bound."""
    embedding: Kernel
    constant: bool
    """Whether the first input is the constant."""
    noisy: bool
    """Whether noise was added to embeddings."""


def check_embedding(reply: ClientEmbedding, kernel: Kernel, *, noisy: bool) -> None:
    """Refuse an embedding that no rows have: features of a bounded kernel have norms of at most `FEATURE_BOUND`.

    Args:
        reply: Of a client.
        kernel: Of the embedding.
        noisy: Whether noise was added, which has no bound.

    Raises:
        InvalidReplyError: Its mean or its trace is larger.
    """
    if kernel in EXACT_KERNELS or noisy:
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


def impossible_parts(
    statistics: Mapping[str, Statistics], embeddings: Mapping[str, ClientEmbedding], kernels: Kernels
) -> str:
    """Say which client's kept parts are of no rows, or far beyond all others', by the rules for replies; empty: none's.

    Args:
        statistics: By client.
        embeddings: By client.
        kernels: Of the features, and of the embedding.
    """
    for client, part in statistics.items():
        why = next(part.contradictions(Stated(part.num_rows)), "")
        if kernels.features is not None:
            why = why or impossible_statistics(part, kernels.features, constant=kernels.constant)
        if why:
            return f"{client}: {why}"
        try:
            check_embedding(embeddings[client], kernels.embedding, noisy=kernels.noisy)
        except InvalidReplyError as err:
            return f"{client}: {err}"
    first = next(iter(statistics.values()))
    inputs, outputs = first.moment.shape
    asked = StatisticsRequest(num_inputs=inputs, num_outputs=outputs, num_packed=first.gram.size)
    far = Ledger().outliers(asked, statistics)
    return next((f"{client}: {err}" for client, err in sorted(far.items())), "")
