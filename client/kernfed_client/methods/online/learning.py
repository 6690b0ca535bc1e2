"""A client's part in an online job: takes rows from its stream, predicts and learns them, and answers with a step.

What was learned and how far the stream was read are kept together, after every round
(`kernfed_client.methods.online.state`). A task that is asked again gets the answer that is kept; one of an earlier
round is computed from the state before it.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import InvalidTensorError, JobStateMissingError
from kernfed.maths.tasks import TASKS
from kernfed.methods.online import dictionary as online
from kernfed.methods.online import meta as online_meta
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.learner import Batch, Learned, Learner, LearnerRules, Mixing
from kernfed.methods.online.messages import (
    DrawDictionaryRequest,
    LocalStep,
    LocalStepRequest,
    MetaStep,
    MetaStepRequest,
    OnlineStep,
    OnlineStepRequest,
    OpenStreamRequest,
    SharedStep,
    SharedStepRequest,
)
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.features import RowFeatures
from kernfed_client.methods.online.state import MAX_WAITING, ClientState, StateKeeper, Waiting
from kernfed_client.streams.sources import open_stream
from kernfed_client.streams.streams import Position

_POLL_S = 0.02
_DRAWS = 256

Predict = Callable[[Floats], float]
"""Scaled row to prediction in the data's units."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of a round, and the stream behind them. n rows with targets."""

    x: tuple[Floats, ...]
    """Scaled where `numbers` is -1, else in the data's units."""
    numbers: tuple[int, ...]
    """Of rows of a table; -1: of a live stream."""
    y: Floats
    told: Floats
    position: Position
    num_skipped: int
    waiting: Mapping[str, Waiting]
    ended: bool


@dataclass(frozen=True, slots=True)
class _Moved:
    """Changes by a round's rows."""

    learner: Learner
    theta: Array
    answer: Mapping[str, Array]


_RoundRequest = OnlineStepRequest | SharedStepRequest | LocalStepRequest


class OnlineClient:
    """An online job at one client, from its stream to its answers."""

    def __init__(self, job: LocalJob, request: OpenStreamRequest) -> None:
        """Open the stream.

        Raises:
            DataError: It cannot be read, or does not fit the job.
        """
        self._job = job
        self._request = request
        self.stream = open_stream(job)
        self.least_rows = job.file.policy.min_rows
        self.norm = request.norm
        low, span = request.target_low, request.target_span
        binary = TASKS[job.task].has_classes
        self.rules = LearnerRules(Mixing.UNIFORM, request.loss, 0.0, 1, 1.0, 0.0, low, span, binary)
        self.dictionary: Dictionary | None = None
        self._shared: Floats | None = None
        """The coordinator's weights, where they are used."""
        self._draws: tuple[int, list[float]] | None = None
        self._features: RowFeatures | None = None
        self._keeper: StateKeeper | None = None

    def draw_dictionary(self, request: DrawDictionaryRequest) -> str:
        """Draw the kernels' frequencies; returns their fingerprint."""
        dictionary = request.dictionary
        if dictionary.num_columns != len(self._job.mean):
            raise InvalidTensorError(
                f"{request.step}: kernels on {dictionary.num_columns} columns, but the job has {len(self._job.mean)}"
            )
        self.dictionary = dictionary
        self.rules = replace(
            self.rules,
            mixing=request.mixing,
            weight_learning_rate=request.weight_learning_rate,
            bin_size=request.bin_size,
            exploration=request.exploration,
            regularisation=request.regularisation,
        )
        self._features = RowFeatures(online.draw(dictionary), self.stream, self.scaled, self._job)
        theta = np.zeros((dictionary.num_kernels, dictionary.num_features))
        self._open_keeper(Learner.start(self.rules, dictionary.num_kernels), theta)
        return online.fingerprint(dictionary)

    def scaled(self, x: Floats) -> Floats:
        """Rows as the learner sees them, of norm about 1 at most."""
        scaled: Floats = (x - self._job.mean) / (self._job.deviation * self._request.norm)
        return scaled

    def prediction_weights(self) -> Floats:
        """Weights of the kernels that the next row is predicted with, (N,)."""
        return self.state.learner.weights() if self._shared is None else self._shared

    @property
    def state(self) -> ClientState:
        """After the last round."""
        return self.keeper.newest

    @property
    def keeper(self) -> StateKeeper:
        """Of the states after the last rounds."""
        if self._keeper is None:
            # A network has no dictionary; what is kept in place of parameters is the last row and its target.
            self._open_keeper(Learner.start(self.rules, 1), np.zeros((0, len(self._job.mean) + 1)))
        assert self._keeper is not None  # noqa: S101  # opened above
        return self._keeper

    def step(self, request: OnlineStepRequest) -> OnlineStep:
        """A round of personalised mixing: (6), (7), Algorithm 1 and (9)."""

        def learn(state: ClientState, taken: _Taken) -> _Moved:
            learned = state.learner.learn(self.rules, self._batch(taken), state.theta)
            drawn = learned.learner.draw(self.rules, self._uniform(request.round_num))
            gradient = self._gradient(taken, learned, state.theta, drawn.kernels)
            if drawn.probability < 1.0:
                gradient /= drawn.probability
            answer: dict[str, Array] = {"kernels": drawn.kernels.astype(np.uint8), "gradient": gradient}
            return _Moved(learned.learner, state.theta, answer)

        empty: dict[str, Array] = {"kernels": np.empty(0, np.uint8), "gradient": np.empty((0, request.num_features))}
        return OnlineStep(**self._round(request, b"step", learn, empty, None))

    def shared_step(self, request: SharedStepRequest) -> SharedStep:
        """A round with the coordinator's weights."""
        asked = self._asked(request)

        def learn(state: ClientState, taken: _Taken) -> _Moved:
            learned = state.learner.learn(self.rules, self._batch(taken), state.theta, request.weights)
            gradient = self._gradient(taken, learned, state.theta, asked)
            losses = learned.losses / len(taken.y)
            answer: dict[str, Array] = {"kernels": request.asked, "gradient": gradient, "losses": losses}
            return _Moved(learned.learner, state.theta, answer)

        empty = {
            "kernels": request.asked,
            "gradient": np.zeros((len(asked), request.num_features)),
            "losses": np.empty(0),
        }
        extra = request.weights.tobytes() + request.asked.tobytes()
        return SharedStep(**self._round(request, b"shared" + extra, learn, empty, request.weights))

    def local_step(self, request: LocalStepRequest) -> LocalStep:
        """A round in which this client moves every kernel's parameters by itself."""
        asked = self._asked(request)

        def learn(state: ClientState, taken: _Taken) -> _Moved:
            learned = state.learner.learn(self.rules, self._batch(taken), state.theta, request.weights)
            gradient = self._gradient(taken, learned, state.theta, np.arange(len(state.theta)))
            theta = state.theta - request.learning_rate * gradient
            answer = {"kernels": request.asked, "theta": theta[asked], "losses": learned.losses / len(taken.y)}
            return _Moved(learned.learner, theta, answer)

        empty = {
            "kernels": request.asked,
            "theta": np.zeros((len(asked), request.num_features)),
            "losses": np.empty(0),
        }
        extra = request.weights.tobytes() + request.asked.tobytes()
        return LocalStep(**self._round(request, b"local" + extra, learn, empty, request.weights))

    def _asked(self, request: SharedStepRequest | LocalStepRequest) -> Array:
        """Numbers of the kernels that are wanted, checked."""
        asked = request.asked.astype(np.intp)
        self._check_kernels(asked, request.step)
        if request.weights.shape != (len(self.state.theta),):
            raise InvalidTensorError(
                f"{request.step}: {request.weights.shape} weights for {len(self.state.theta)} kernels"
            )
        self._shared = request.weights
        return asked

    def meta_step(self, request: MetaStepRequest) -> MetaStep:
        """A round of Per-FedAvg: adapt to the last row, predict the next, move the network by the gradient there."""
        hidden, rules = request.hidden, self.rules
        if len(request.weights) != online_meta.num_weights(len(self._job.mean), hidden):
            raise InvalidTensorError(f"{request.step}: {len(request.weights)} weights do not fit this network")
        digest = _digest(b"meta", request.round_num, request.weights, request.batch_rows)
        newest = self.keeper.newest
        if newest.round_num == request.round_num and newest.request == digest:
            return MetaStep(**_numbers(newest.reply))
        state = self.keeper.before(request.round_num)
        weights, last, tally = request.weights, state.theta, state.learner.tally

        def adapted() -> Floats:
            if not len(last):
                return weights
            x, y = last[0, :-1], float(last[0, -1])
            return weights - request.adaptation_rate * online_meta.gradient(weights, x, y, hidden)

        def predict(x: Floats) -> float:
            return rules.target_low + rules.target_span * online_meta.predict(adapted(), x, hidden)

        taken = self._take(state, request.batch_rows, request.wait_s, predict)
        scaled = [x if number < 0 else self.scaled(x) for x, number in zip(taken.x, taken.numbers, strict=True)]
        for x, y, before in zip(scaled, taken.y.tolist(), taken.told.tolist(), strict=True):
            personal = adapted()
            target = (y - rules.target_low) / rules.target_span
            f = online_meta.predict(personal, x, hidden)
            told = before if before == before else rules.target_low + rules.target_span * f
            tally = tally.add(told, y, (f - target) ** 2, binary=rules.binary)
            weights = weights - request.learning_rate * online_meta.gradient(personal, x, target, hidden)
            last = np.append(x, target)[None]
        empty = {"weights": np.empty(0)}
        learner = replace(state.learner, tally=tally)
        moved = _Moved(learner, last, {"weights": weights} if len(taken.y) else empty)
        return MetaStep(**_numbers(self._close(request.round_num, digest, state, taken, moved)))

    def _round(
        self,
        request: _RoundRequest,
        kind: bytes,
        learn: Callable[[ClientState, _Taken], _Moved],
        empty: dict[str, Array],
        shared: Floats | None,
    ) -> dict[str, Any]:
        """Fields of the answer to a round."""
        keeper = self.keeper
        digest = _digest(kind, request.round_num, request.base, request.kernels, request.theta, request.batch_rows)
        newest = keeper.newest
        if newest.round_num == request.round_num and newest.request == digest:
            return _numbers(newest.reply)
        state = self._with_parameters(keeper.before(request.round_num), request)
        if state is None:
            flags = (0, False, True, len(newest.waiting), newest.num_skipped)
            return _numbers({"numbers": np.array(flags), **empty})

        def predict(x: Floats) -> float:
            assert self._features is not None  # noqa: S101  # there are parameters, so there is a dictionary
            f = online.predictions(self._features.of_row(x), state.theta)
            return state.learner.predict(self.rules, f, shared)

        taken = self._take(state, request.batch_rows, request.wait_s, predict)
        moved = learn(state, taken) if len(taken.y) else _Moved(state.learner, state.theta, empty)
        return _numbers(self._close(request.round_num, digest, state, taken, moved))

    def _with_parameters(self, state: ClientState, request: _RoundRequest) -> ClientState | None:
        """The state with the parameters of a request; None where it does not hold what they build on."""
        kernels = request.kernels.astype(np.intp)
        self._check_kernels(kernels, request.step)
        if request.theta.shape[1] != state.theta.shape[1]:
            raise InvalidTensorError(f"{request.step}: {request.theta.shape[1]} features, want {state.theta.shape[1]}")
        if request.base < 0:
            if not np.array_equal(kernels, np.arange(len(state.theta))):
                raise InvalidTensorError(
                    f"{request.step}: not all kernels' parameters, and no round that they complete"
                )
            return state.moved_to(np.array(request.theta, dtype=np.float64), request.round_num)
        if not request.base <= state.version <= request.round_num:
            return None
        if not len(kernels):
            return replace(state, version=request.round_num)
        theta = state.theta.copy()
        theta[kernels] = request.theta
        return state.moved_to(theta, request.round_num)

    def _check_kernels(self, kernels: Array, step: str) -> None:
        if self.dictionary is None:
            raise JobStateMissingError("this client drew no kernels for the job; prepare it again")
        if len(kernels) and kernels.max() >= self.dictionary.num_kernels:
            raise InvalidTensorError(f"{step}: kernel {kernels.max()} of {self.dictionary.num_kernels}")

    def _take(self, state: ClientState, batch_rows: int, wait_s: float, predict: Predict) -> _Taken:
        """Read rows until there are enough with targets, or none for `wait_s` seconds.

        Fewer than the policy's least number are left in the stream for a later round.
        """
        wanted = max(batch_rows, self.least_rows)
        deadline = time.monotonic() + wait_s
        position, skipped = state.position, state.num_skipped
        waiting = dict(state.waiting)
        x: list[Floats] = []
        numbers: list[int] = []
        y: list[float] = []
        told: list[float] = []
        while len(y) < wanted:
            chunk = self.stream.read(position, wanted - len(y))
            position = chunk.position
            skipped += chunk.num_skipped
            for row in chunk.rows:
                earlier = waiting.pop(row.key, None) if row.key is not None else None
                if row.x is None and earlier is None:
                    skipped += 1  # a target without its row
                    continue
                if row.number >= 0 and row.x is not None and row.y is not None:
                    x.append(row.x)  # scaled with its block
                else:
                    scaled = earlier.x if row.x is None and earlier is not None else self.scaled(np.asarray(row.x))
                    if row.y is None:
                        waiting[str(row.key)] = Waiting(scaled, predict(scaled))
                        continue
                    x.append(scaled)
                numbers.append(row.number)
                y.append(row.y)
                told.append(math.nan if earlier is None else earlier.told)
            if not chunk.rows and not chunk.num_skipped:
                enough = len(y) >= self.least_rows
                if enough or self.stream.ended(position) or time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_S)
        while len(waiting) > MAX_WAITING:
            del waiting[next(iter(waiting))]
            skipped += 1
        ended = self.stream.ended(position)
        if 0 < len(y) < self.least_rows:
            if not ended:  # leave them in the stream, so that they are learned with others
                return _Taken((), (), np.empty(0), np.empty(0), state.position, state.num_skipped, state.waiting, False)
            x, numbers, y, told = [], [], [], []
        return _Taken(tuple(x), tuple(numbers), np.array(y), np.array(told), position, skipped, waiting, ended)

    def _batch(self, taken: _Taken) -> Batch:
        assert self._features is not None  # noqa: S101  # there are parameters, so there is a dictionary
        return Batch(self._features.of_rows(taken.x, taken.numbers), taken.y, taken.told)

    def _gradient(self, taken: _Taken, learned: Learned, theta: Floats, kernels: Array) -> Floats:
        assert self._features is not None  # noqa: S101  # as above
        return online.kernel_gradients(
            self._features.of_rows(taken.x, taken.numbers),
            learned.f,
            learned.y,
            theta,
            kernels,
            loss=self.rules.loss,
            regularisation=self.rules.regularisation,
        )

    def _close(
        self, round_num: int, digest: str, state: ClientState, taken: _Taken, moved: _Moved
    ) -> Mapping[str, Array]:
        """Keep what the round changed, and its answer."""
        flags = (len(taken.y), taken.ended, False, len(taken.waiting), taken.num_skipped)
        answer = {"numbers": np.array(flags), **moved.answer}
        counted = len(taken.y) > 0
        after = ClientState(
            round_num=round_num if counted else state.round_num,
            request=digest if counted else state.request,
            position=taken.position,
            num_skipped=taken.num_skipped,
            learner=moved.learner,
            theta=moved.theta,
            version=state.version,
            waiting=taken.waiting,
            reply=answer if counted else state.reply,
        )
        if counted:
            self.keeper.keep(after)
        else:
            self.keeper.touch(after)
        return answer

    def _open_keeper(self, learner: Learner, theta: Array) -> None:
        start = ClientState(0, "", {}, 0, learner, theta, -1, {}, {})
        self._keeper = StateKeeper(start, self._job.folder / "online" if self._job.durable else None)

    def _uniform(self, round_num: int) -> float:
        """Draw of this client for a round; many are made at a time, for opening a stream takes as long as a row."""
        block, at = divmod(round_num, _DRAWS)
        if self._draws is None or self._draws[0] != block:
            names = ("online", "bin", self._job.client, str(block))
            self._draws = block, rng.stream(self._request.seed, *names).uniform(_DRAWS).tolist()
        return self._draws[1][at]


def _numbers(answer: Mapping[str, Array]) -> dict[str, Any]:
    """Fields of a reply from what is kept of it."""
    samples, ended, whole, waiting, skipped = answer["numbers"].tolist()
    fields: dict[str, Any] = {name: array for name, array in answer.items() if name != "numbers"}
    return fields | {
        "num_samples": samples,
        "ended": bool(ended),
        "needs_whole": bool(whole),
        "num_waiting": waiting,
        "num_skipped": skipped,
    }


def _digest(*parts: bytes | int | Array) -> str:
    """Tells a question that is asked again from another one of the same round; both come from our coordinator."""
    digest = 0
    for part in parts:
        if isinstance(part, np.ndarray):
            digest = zlib.crc32(np.ascontiguousarray(part).data.cast("B") if part.size else b"", digest)
        else:
            digest = zlib.crc32(part if isinstance(part, bytes) else f";{part};".encode(), digest)
    return f"{digest:08x}"
