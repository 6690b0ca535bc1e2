"""Sums over all rows that this client has learned, where it has kept them."""

from __future__ import annotations

from kernfed.errors import InvalidTensorError
from kernfed.methods.online.hindsight import Sums
from kernfed.methods.online.hindsight_messages import Hindsight, HindsightRequest
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.own_model import own_features
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.streams.streams import TableStream

_BLOCK_ROWS = 256


def hindsight(job: LocalJob, client: OnlineClient, request: HindsightRequest) -> Hindsight:
    """Sum over the rows learned so far; 0 of them where they are gone, and with another loss than the squared one.

    Raises:
        InvalidTensorError: Other kernels were drawn.
    """
    features, stream, rules = client.kernel_features, client.stream, client.rules
    wanted = request.num_kernels, request.num_features
    if features is None or wanted != client.kernel_shape:
        raise InvalidTensorError(f"{request.step}: kernels of shape {wanted}, want {client.kernel_shape}")
    numbers = learned_rows(client) if rules.loss is Loss.SQUARED else []
    found = Sums.none(*wanted)
    for start in range(0, len(numbers), _BLOCK_ROWS):
        rows = numbers[start : start + _BLOCK_ROWS]
        assert isinstance(stream, TableStream)  # noqa: S101  # no other has numbers
        z = features.of_rows([stream.x[i] for i in rows], rows)
        y = (stream.y[rows] - rules.target_low) / rules.target_span
        found += Sums.of(own_features(z) if client.pooled else z, y)
    return Hindsight(
        num_rows=job.num_rows,
        num_samples=len(numbers),
        gram=found.gram,
        moment=found.moment,
        square=found.square,
    )


def learned_rows(client: OnlineClient) -> list[int]:
    """Numbers of the rows that were learned, in their order; none where that is not known.

    A table keeps its rows, and which of them lie beyond the ranges can be told again. A stream that goes on has none,
    and neither has a client some of whose rows were passed over for another reason.
    """
    state, stream = client.state, client.stream
    told = state.left_out
    if not isinstance(stream, TableStream) or told.rare or told.near or told.failed or told.behind or told.ahead:
        return []
    stop = int(state.position.get("row", 0))
    numbers = [i for i in range(stop) if client.taker.learns(stream.x[i], float(stream.y[i]))]
    learned = state.learner.tally.num_rows
    return numbers[:learned] if learned <= len(numbers) else []
