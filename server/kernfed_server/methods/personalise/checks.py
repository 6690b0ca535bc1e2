"""Replies that no rows give, by what the coordinator asked for; what a reply contradicts by itself its message says."""

from __future__ import annotations

from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import EXACT_KERNELS
from kernfed.maths.aggregate import norm
from kernfed.methods.personalise.messages import ClientEmbedding, EmbedRequest
from kernfed.methods.personalise.q_aggregation import FEATURE_BOUND


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
