"""The methods that personalised online multi-kernel learning is compared with; streams and rounds are the same.

What leaves a client, beside what `online` sends at the start and its metrics: gradients of all kernels (`ofskl`,
`ofmkl-avg`, `vm-kofl`: `gradient`); parameters of the kernel that was drawn (`em-kofl`: `model_update`); the loss of
every kernel in each round (`vm-kofl`, `em-kofl`: `metric`); updated weights of a network (`perfedavg`: `model_update`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.aggregate import norm
from kernfed.maths.robust import MeanRule
from kernfed.methods.online import meta as online_meta
from kernfed.methods.online.finding import OnlineFinding
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.messages import LocalStep, LocalStepRequest, SharedStep, SharedStepRequest
from kernfed.methods.online.meta_messages import MetaStep, MetaStepRequest
from kernfed.methods.online.mixing.weights import Hedge
from kernfed.methods.online.server_step import ClientStep, pool
from kernfed.methods.online.settings import (
    DictionarySettings,
    EmKoflSettings,
    KernelStreamSettings,
    OfmklAvgSettings,
    OfsklSettings,
    PerFedAvgSettings,
    VmKoflSettings,
)
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import Arrays
from kernfed_server.methods.online.hindsight import InHindsight
from kernfed_server.methods.online.kernels import KernelParameters
from kernfed_server.methods.online.opening import draw_dictionary, fixed_rate, open_streams
from kernfed_server.methods.online.rounds import Method, StreamLoop
from kernfed_server.methods.online.updates import Updates


async def run_ofskl(setup: Setup, settings: OfsklSettings, cohort: Cohort, run: Run) -> Model | None:
    """Gradient steps on a single kernel.

    Source: Mitra, Hassani & Pappas (2021), *Online federated learning*, Fed-OMD with one local step.
    """
    scales = (settings.lengthscale,)
    return await _uniform(setup, settings, cohort, run, scales, settings.num_frequencies, settings.learning_rate)


async def run_ofmkl_avg(setup: Setup, settings: OfmklAvgSettings, cohort: Cohort, run: Run) -> Model | None:
    """Gradient steps on every kernel by itself; the prediction is the average of theirs.

    Source: Mitra, Hassani & Pappas (2021) on the kernels of Ghari & Shen (2022), Section 4.
    """
    scales = settings.dictionary_lengthscales
    return await _uniform(setup, settings, cohort, run, scales, settings.num_frequencies, settings.learning_rate)


async def run_vm_kofl(setup: Setup, settings: VmKoflSettings, cohort: Cohort, run: Run) -> Model | None:
    """Gradient steps on every kernel, and one mix of them, learned by the coordinator from the clients' mean losses.

    Source: Hong & Chae (2021), *Communication-efficient randomized algorithm for multi-kernel online federated
    learning*, vM-KOFL.
    """
    return await _mixed(setup, settings, cohort, run, _SharedWeights)


async def run_em_kofl(setup: Setup, settings: EmKoflSettings, cohort: Cohort, run: Run) -> Model | None:
    """The coordinator draws a kernel by its mix; clients predict with it, and only its parameters travel.

    Clients move all of their parameters by themselves; those of the kernel that was drawn are averaged.

    Source: Hong & Chae (2021), eM-KOFL.
    """
    return await _mixed(setup, settings, cohort, run, partial(_DrawnKernel, rule=settings.rule))


async def run_perfedavg(setup: Setup, settings: PerFedAvgSettings, cohort: Cohort, run: Run) -> Model | None:
    """Average the clients' steps of a network at its adaptation to each client's last row.

    Source: Fallah, Mokhtari & Ozdaglar (2020), Algorithm 1, first-order.
    """
    opened = await open_streams(setup, settings, cohort, run)
    method = _Network(setup, settings, run)
    facts = OnlineFinding(method="perfedavg", num_parameters=len(method.weights))
    return await StreamLoop(setup, settings, cohort, run, opened.rows).go(method, facts)


async def _uniform(
    setup: Setup,
    settings: KernelStreamSettings,
    cohort: Cohort,
    run: Run,
    scales: tuple[float, ...],
    num_frequencies: int,
    rate: float | str,
) -> Model | None:
    opened = await open_streams(setup, settings, cohort, run)
    dictionary = await draw_dictionary(
        setup, settings, cohort, run, scales, num_frequencies, mixing=Mixing.UNIFORM, bin_size=len(scales)
    )
    step = fixed_rate(rate, "learning_rate", settings, opened)
    kernels = KernelParameters(setup, settings, opened, dictionary, run, step, 1.0, len(scales))
    facts = OnlineFinding(method="ofskl" if len(scales) == 1 else "ofmkl-avg", num_kernels=len(scales))
    return await StreamLoop(setup, settings, cohort, run, opened.rows).go(
        kernels, facts, InHindsight(dictionary, opened.loss)
    )


async def _mixed(
    setup: Setup,
    settings: VmKoflSettings | EmKoflSettings,
    cohort: Cohort,
    run: Run,
    method: Callable[[KernelParameters, DictionarySettings, Run, int, tuple[float, float]], Method],
) -> Model | None:
    opened = await open_streams(setup, settings, cohort, run)
    scales = settings.dictionary_lengthscales
    dictionary = await draw_dictionary(
        setup, settings, cohort, run, scales, settings.num_frequencies, mixing=Mixing.SHARED, bin_size=len(scales)
    )
    step = fixed_rate(settings.learning_rate, "learning_rate", settings, opened)
    kernels = KernelParameters(setup, settings, opened, dictionary, run, step, 1.0, len(scales))
    rate = fixed_rate(settings.weight_learning_rate, "weight_learning_rate", settings, opened)
    made = method(kernels, settings, run, setup.schema.seed, (step, rate))
    facts = OnlineFinding(method=settings.name, num_kernels=len(scales), num_frequencies=settings.num_frequencies)
    return await StreamLoop(setup, settings, cohort, run, opened.rows).go(
        made, facts, InHindsight(dictionary, opened.loss)
    )


class _SharedWeights:
    """Kernels with one mix for all clients, which send the gradients of all of them."""

    def __init__(
        self, kernels: KernelParameters, settings: DictionarySettings, run: Run, seed: int, rates: tuple[float, float]
    ) -> None:
        """Begin with equal weights, or where a resumed run was; `rates` are those of parameters and weights."""
        self.kernels, self.settings, self.seed = kernels, settings, seed
        self.step_rate, self.weight_rate = rates
        n = kernels.dictionary.num_kernels
        self.hedge = Hedge.start(n) if run.resumed is None else Hedge(run.resumed["log_weights"])

    def request(self, round_num: int, held: int, wait_s: float) -> SharedStepRequest:
        """See `online_rounds.Method.request`."""
        kernels, theta = self.kernels.changes(held)
        return SharedStepRequest(
            round_num=round_num,
            base=held,
            num_features=self.kernels.dictionary.num_features,
            kernels=kernels,
            theta=theta,
            weights=self.hedge.weights(),
            asked=np.arange(self.kernels.dictionary.num_kernels, dtype=np.uint8),
            batch_rows=self.settings.batch_rows,
            wait_s=wait_s,
        )

    def absorb(self, round_num: int, replies: Mapping[str, SharedStep]) -> None:
        """See `online_rounds.Method.absorb`."""
        kernels, n = self.kernels, self.kernels.dictionary.num_kernels
        every, norms = np.arange(n), self.kernels.norms
        counted = [
            reply
            for client, reply in replies.items()
            if kernels.sound_losses(client, reply.losses, norms) and kernels.sound(client, every, reply.gradient)
        ]
        if counted:
            steps = [ClientStep(np.arange(n), reply.gradient, reply.num_samples) for reply in counted]
            kernels.move(round_num, pool(steps, n, kernels.dictionary.num_features, 1.0))
            self.learn_weights(counted)

    def learn_weights(self, counted: Sequence[SharedStep | LocalStep]) -> None:
        """Multiplicative weights on the mean losses of all rows of the round."""
        rows = sum(reply.num_samples for reply in counted)
        losses = np.sum([reply.num_samples / rows * reply.losses for reply in counted], axis=0)
        self.hedge = self.hedge.update(losses, self.weight_rate)

    def to_arrays(self) -> Mapping[str, Array]:
        """See `online_rounds.Method.to_arrays`."""
        return {**self.kernels.to_arrays(), "log_weights": self.hedge.log_weights}

    def model(self, arrays: Arrays, round_num: int) -> Model:
        """See `online_rounds.Method.model`."""
        return self.kernels.model(arrays, round_num)


class _DrawnKernel:
    """Kernels that clients move by themselves; one per round is drawn by a common mix, predicts, and is averaged."""

    def __init__(
        self,
        kernels: KernelParameters,
        settings: DictionarySettings,
        run: Run,
        seed: int,
        rates: tuple[float, float],
        *,
        rule: MeanRule,
    ) -> None:
        """As `_SharedWeights`; `rule` is that of the mean of the drawn kernel's parameters."""
        self._shared = _SharedWeights(kernels, settings, run, seed, rates)
        self._updates = Updates(run, rule)

    def _drawn(self, round_num: int) -> int:
        weights = self._shared.hedge.weights()
        uniform = rng.stream(self._shared.seed, "online", "kernel", str(round_num)).uniform(1)[0]
        return min(int(np.searchsorted(np.cumsum(weights), uniform, side="right")), len(weights) - 1)

    def request(self, round_num: int, held: int, wait_s: float) -> LocalStepRequest:
        """See `online_rounds.Method.request`."""
        shared = self._shared
        kernels, theta = shared.kernels.changes(held)
        drawn = self._drawn(round_num)
        return LocalStepRequest(
            round_num=round_num,
            base=held,
            num_features=shared.kernels.dictionary.num_features,
            kernels=kernels,
            theta=theta,
            weights=np.eye(shared.kernels.dictionary.num_kernels)[drawn],
            asked=np.array([drawn], dtype=np.uint8),
            learning_rate=shared.step_rate,
            batch_rows=shared.settings.batch_rows,
            wait_s=wait_s,
        )

    def absorb(self, round_num: int, replies: Mapping[str, LocalStep]) -> None:
        """See `online_rounds.Method.absorb`."""
        kernels, drawn = self._shared.kernels, self._drawn(round_num)
        norms = kernels.own_norms(round_num)
        counted = {c: reply for c, reply in replies.items() if kernels.sound_losses(c, reply.losses, norms)}
        theta = {c: reply.theta[0] for c, reply in counted.items()}
        before = kernels.state.theta[drawn]
        floor = 1.0 + self._shared.settings.outlier_spans + kernels.norms[drawn]
        theta = self._updates.plausible(theta, before, floor, most=norms[drawn])
        if theta:
            rows = {c: counted[c].num_samples for c in theta}
            kernels.place(round_num, drawn, self._updates.mean(theta, rows, before))
            self._shared.learn_weights([counted[c] for c in theta])

    def to_arrays(self) -> Mapping[str, Array]:
        """See `online_rounds.Method.to_arrays`."""
        return self._shared.to_arrays()

    def model(self, arrays: Arrays, round_num: int) -> Model:
        """See `online_rounds.Method.model`."""
        return self._shared.model(arrays, round_num)


class _Network:
    """The weights of the network that clients adapt."""

    def __init__(self, setup: Setup, settings: PerFedAvgSettings, run: Run) -> None:
        self._settings = settings
        self._updates = Updates(run, settings.rule)
        d, schema = len(setup.agreed.mean), setup.schema
        self.weights: Array = (
            online_meta.start(d, settings.hidden, schema.seed, mirrored=schema.task is LearningTask.BINARY)
            if run.resumed is None
            else run.resumed["weights"]
        )

    def request(self, round_num: int, held: int, wait_s: float) -> MetaStepRequest:
        """See `online_rounds.Method.request`."""
        del held  # the whole network moves in each round
        settings = self._settings
        return MetaStepRequest(
            round_num=round_num,
            hidden=settings.hidden,
            weights=self.weights,
            adaptation_rate=settings.adaptation_rate,
            learning_rate=settings.learning_rate,
            batch_rows=settings.batch_rows,
            wait_s=wait_s,
        )

    def absorb(self, round_num: int, replies: Mapping[str, MetaStep]) -> None:
        """See `online_rounds.Method.absorb`."""
        del round_num
        fitting = {c: reply.weights for c, reply in replies.items() if reply.weights.shape == self.weights.shape}
        counted = self._updates.plausible(fitting, self.weights, floor=norm(self.weights))
        if counted:
            rows = {c: replies[c].num_samples for c in counted}
            self.weights = self._updates.mean(counted, rows, self.weights)

    def to_arrays(self) -> Mapping[str, Array]:
        """See `online_rounds.Method.to_arrays`."""
        return {"weights": self.weights}

    def model(self, arrays: Arrays, round_num: int) -> Model | None:
        """See `online_rounds.Method.model`; there is none that a client could use without its last row."""
        del arrays, round_num
        return None
