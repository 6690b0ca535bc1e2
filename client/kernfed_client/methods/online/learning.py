"""A client's part in an online job: takes rows from its stream, predicts and learns them, and answers with a step.

What was learned and how far the stream was read are kept together, after every round
(`kernfed_client.methods.online.state`). A task that is asked again gets the answer that is kept; one of an earlier
round is computed from the state before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import InvalidTensorError, JobStateMissingError, PolicyError
from kernfed.jobs.client_file import STREAM_STATES, job_folder
from kernfed.maths.tasks import TASKS
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.learner import Batch, Learned, Learner, LearnerRules, Mixing
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import (
    DrawDictionaryRequest,
    LocalStep,
    LocalStepRequest,
    OnlineStep,
    OnlineStepRequest,
    OpenStreamRequest,
    SharedStep,
    SharedStepRequest,
)
from kernfed.methods.online.own_model import LENGTHSCALES, OwnModel, own_features
from kernfed.methods.online.pooled_messages import PooledStepRequest
from kernfed.methods.online.pooled_ridge import KEEPS
from kernfed.methods.online.stream_step import KernelStepRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online import answers
from kernfed_client.methods.online.features import RowFeatures
from kernfed_client.methods.online.guard import Guard, Moved, refuse_sure_rows
from kernfed_client.methods.online.round_rows import Limits, Taken
from kernfed_client.methods.online.state import ClientState, LeftOut, StateKeeper, has_state, take_over
from kernfed_client.methods.online.taking import taker_of
from kernfed_client.streams.sources import stream_of, table_stream

_DRAWS = 256


class OnlineClient:
    """An online job at one client, from its stream to its answers."""

    def __init__(self, job: LocalJob, request: OpenStreamRequest) -> None:
        """Open the stream.

        Raises:
            DataError: It cannot be read, or does not fit the job.
            PolicyError: The record of rows that jobs used is damaged, or columns are bent as few rows of a round meet.
        """
        self._job = job
        self._request = request
        found = stream_of(job.file, job.dataset, job.schema, job.classes)
        self.stream = table_stream(job.train_file, job.data.train, job.classes) if found is None else found
        self.least_rows = job.file.policy.min_rows
        self.norm = request.norm
        low, span = request.target_low, request.target_span
        binary = TASKS[job.task].has_classes
        limits = Limits.of(*((0.0, 1.0) if binary else (low, span)), request.outlier_spans)
        self.taker = taker_of(job, self.stream, self.scaled, limits)
        self.guard = Guard()
        self.rules = LearnerRules(Mixing.UNIFORM, request.loss, 0.0, 1, 1.0, 0.0, low, span, binary)
        self.dictionary: Dictionary | None = None
        self._shared: Floats | None = None
        """The coordinator's weights, where they are used."""
        self._draws: tuple[int, list[float]] | None = None
        self._features: RowFeatures | None = None
        self.own_dictionary: Dictionary | None = None
        """Of the client's own model."""
        self.own_features: RowFeatures | None = None
        self._keeper: StateKeeper | None = None
        self._folder = job.folder / STREAM_STATES if job.durable else None
        self._former = job_folder(job.file.state, request.former) / STREAM_STATES

    def draw_dictionary(self, request: DrawDictionaryRequest) -> str:
        """Draw the kernels' frequencies; returns their fingerprint."""
        dictionary = request.dictionary
        if dictionary.num_columns != len(self._job.mean):
            raise InvalidTensorError(
                f"{request.step}: kernels on {dictionary.num_columns} columns, but the job has {len(self._job.mean)}"
            )
        for drawn, matrices in ((dictionary, request.pooled), (self._own(request), True)):
            numbers = drawn.num_columns + 6 + (2 * drawn.num_features if matrices else 0)
            self._job.require(drawn.num_kernels * drawn.num_features * numbers, "the kernels and their models")
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
        own = None
        if request.pooled:
            self._open_pooled(request)
            return online.fingerprint(dictionary)
        if request.own_frequencies:
            self.own_dictionary = self._own(request)
            own = self._own_model(request, self.own_dictionary, dictionary.num_kernels)
            self.own_features = RowFeatures(online.draw(self.own_dictionary), self.stream, self.scaled, self._job)
        self._open_keeper(Learner.start(self.rules, dictionary.num_kernels, own), theta)
        return online.fingerprint(dictionary)

    def _own(self, request: DrawDictionaryRequest) -> Dictionary:
        """Kernels of this client's own model."""
        seed = rng.seed(self._request.seed, "online", "own")
        return Dictionary(LENGTHSCALES, request.own_frequencies, request.dictionary.num_columns, seed)

    @staticmethod
    def _own_model(request: DrawDictionaryRequest, dictionary: Dictionary, num_common: int) -> OwnModel:
        """A client's own experts, beside so many common kernels."""
        num_features = dictionary.num_features + 1
        return OwnModel.start(num_features, num_common, gated=not request.gradual, bounded=request.bounded)

    def _open_pooled(self, request: DrawDictionaryRequest) -> None:
        """Kernels that are ridges on the rows of all clients, with the features of this client's own model."""
        if not self.allows_statistics:
            raise PolicyError(
                "the job shares statistics of rows, which must not leave this client; its administrator can add "
                f"{' and '.join(PooledStepRequest.kinds)} to policy.allow"
            )
        dictionary = request.dictionary
        if dictionary.lengthscales != LENGTHSCALES:
            raise InvalidTensorError(f"ridges on pooled rows of lengthscales {dictionary.lengthscales}")
        self.own_dictionary, self.own_features = dictionary, self._features
        num = dictionary.num_kernels
        own = self._own_model(request, dictionary, len(KEEPS) * num)
        learner = Learner.start(self.rules, len(KEEPS) * num, own)
        self._open_keeper(learner, np.zeros((len(KEEPS), num, dictionary.num_features + 1)))

    @property
    def pooled(self) -> bool:
        """Whether the common kernels are ridges on the rows of all clients, which have a constant among features."""
        return self.own_features is not None and self.own_features is self._features

    @property
    def kernel_features(self) -> RowFeatures | None:
        """Of the common kernels; None before they were drawn."""
        return self._features

    @property
    def kernel_shape(self) -> tuple[int, int]:
        """Common kernels N, and features F of each; (0, 0) before they were drawn."""
        drawn = self.dictionary
        return (0, 0) if drawn is None else (drawn.num_kernels, drawn.num_features + self.pooled)

    @property
    def allows_statistics(self) -> bool:
        """Whether the policy lets leave what answers on statistics hold."""
        return set(PooledStepRequest.kinds) <= set(self._job.file.policy.allow)

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

        def learn(state: ClientState, taken: Taken) -> Moved:
            learned = state.learner.learn(self.rules, self._batch(taken), state.theta)
            drawn = learned.learner.draw(self.rules, self._uniform(request.round_num))
            gradient = self._gradient(taken, learned, state.theta, drawn.kernels)
            if drawn.probability < 1.0:
                gradient /= drawn.probability
            answer: dict[str, Array] = {"kernels": drawn.kernels.astype(np.uint8), "gradient": gradient}
            return Moved(learned.learner, state.theta, answer)

        empty: dict[str, Array] = {"kernels": np.empty(0, np.uint8), "gradient": np.empty((0, request.num_features))}
        return OnlineStep(**self._round(request, b"step", learn, empty, None))

    def shared_step(self, request: SharedStepRequest) -> SharedStep:
        """A round with the coordinator's weights."""
        asked = self._asked(request)

        def learn(state: ClientState, taken: Taken) -> Moved:
            learned = state.learner.learn(self.rules, self._batch(taken), state.theta, request.weights)
            gradient = self._gradient(taken, learned, state.theta, asked)
            losses = learned.losses / len(taken.y)
            answer: dict[str, Array] = {"kernels": request.asked, "gradient": gradient, "losses": losses}
            return Moved(learned.learner, state.theta, answer)

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

        def learn(state: ClientState, taken: Taken) -> Moved:
            learned = state.learner.learn(self.rules, self._batch(taken), state.theta, request.weights)
            gradient = self._gradient(taken, learned, state.theta, np.arange(len(state.theta)))
            theta = state.theta - request.learning_rate * gradient
            answer = {"kernels": request.asked, "theta": theta[asked], "losses": learned.losses / len(taken.y)}
            return Moved(learned.learner, theta, answer)

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

    def digest(self, *parts: bytes | int | Array) -> str:
        """Of a question, and of the scales that an answer depends on: a coordinator may have agreed on others since."""
        low, span = self._request.target_low, self._request.target_span
        scales = np.concatenate([self._job.mean, self._job.deviation, (self.norm, low, span)])
        return answers.digest(scales, *parts)

    def _round(
        self,
        request: KernelStepRequest[Any],
        kind: bytes,
        learn: Callable[[ClientState, Taken], Moved],
        empty: dict[str, Array],
        shared: Floats | None,
    ) -> dict[str, Any]:
        """Fields of the answer to a round."""
        keeper = self.keeper
        digest = self.digest(kind, request.round_num, request.base, request.kernels, request.theta, request.batch_rows)
        kept = keeper.answered(request.round_num, digest, request.uncounted_from)
        if kept is not None:
            return answers.fields(kept)
        state = self._with_parameters(keeper.before(request.round_num, request.uncounted_from), request)
        if state is None:
            newest = keeper.newest
            numbers = answers.numbers(0, len(newest.waiting), newest.left_out, whole=True)
            return answers.fields({"numbers": numbers, **empty})

        def predict(x: Floats) -> float:
            assert self._features is not None  # noqa: S101  # there are parameters, so there is a dictionary
            f = online.predictions(self._features.of_row(x), state.theta)
            own = None if self.own_features is None else own_features(self.own_features.of_row(x))
            return state.learner.predict(self.rules, f, shared, own)

        taken = self.taker.take(state, request.batch_rows, request.wait_s, predict)
        if len(taken.y) and self.least_rows > 1 and self.rules.loss is Loss.LOGISTIC:
            assert self._features is not None  # noqa: S101  # as above
            z = self._features.of_rows(taken.x, taken.numbers)
            refuse_sure_rows(online.predictions(z, state.theta), request.step)
        taken, moved = self.guard.learned(state, taken, learn, Moved(state.learner, state.theta, empty))
        return answers.fields(self.close(request.round_num, digest, state, taken, moved))

    def _with_parameters(self, state: ClientState, request: KernelStepRequest[Any]) -> ClientState | None:
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

    def _batch(self, taken: Taken) -> Batch:
        assert self._features is not None  # noqa: S101  # there are parameters, so there is a dictionary
        own = self.own_features
        own_z = None if own is None else own_features(own.of_rows(taken.x, taken.numbers))
        return Batch(self._features.of_rows(taken.x, taken.numbers), taken.y, taken.told, own_z)

    def _gradient(self, taken: Taken, learned: Learned, theta: Floats, kernels: Array) -> Floats:
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

    def close(self, round_num: int, digest: str, state: ClientState, taken: Taken, moved: Moved) -> Mapping[str, Array]:
        """Keep what the round changed, and its answer."""
        numbers = answers.numbers(
            len(taken.y),
            len(taken.waiting),
            taken.left_out,
            ended=taken.ended,
            waits_for_disk=taken.waits_for_disk,
        )
        answer = {"numbers": numbers, **moved.answer}
        counted = len(taken.y) > 0
        after = ClientState(
            round_num=round_num if counted else state.round_num,
            after=state.round_num if counted else state.after,
            request=digest if counted else state.request,
            position=taken.position,
            left_out=taken.left_out,
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
        start = ClientState(0, 0, "", {}, LeftOut(), learner, theta, -1, {}, {})
        if self._folder is not None and self.continues:
            take_over(self._former, self._folder)
        self._keeper = StateKeeper(start, self._folder)

    @property
    def continues(self) -> bool:
        """Whether there is a state of this job, or of the one that it goes on from."""
        return self._folder is not None and any(map(has_state, (self._folder, self._former)))

    def _uniform(self, round_num: int) -> float:
        """Draw of this client for a round; many are made at a time, for opening a stream takes as long as a row."""
        block, at = divmod(round_num, _DRAWS)
        if self._draws is None or self._draws[0] != block:
            names = ("online", "bin", self._job.client, str(block))
            self._draws = block, rng.stream(self._request.seed, *names).uniform(_DRAWS).tolist()
        return self._draws[1][at]
