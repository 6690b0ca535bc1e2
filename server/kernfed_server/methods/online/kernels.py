"""Personalised online federated multi-kernel learning: common kernels, each client's own mix of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import ConfigError
from kernfed.federation.cohort import Cohort
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.finding import OnlineFinding
from kernfed.methods.online.hindsight import Rates
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.messages import OnlineStep, OnlineStepRequest
from kernfed.methods.online.mixing.bins import num_bins
from kernfed.methods.online.server_step import (
    AdaptiveStep,
    ClientStep,
    Pooled,
    most_gradient,
    most_loss,
    most_parameter,
    paper_step,
    pool,
)
from kernfed.methods.online.settings import GRADIENT_BUDGET, KernelStreamSettings, OnlineSettings
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import Arrays
from kernfed_server.methods.online.agreed import Opened, parameters
from kernfed_server.methods.online.hindsight import InHindsight
from kernfed_server.methods.online.opening import draw_dictionary, fixed_rate, open_streams
from kernfed_server.methods.online.pooled import run_pooled
from kernfed_server.methods.online.rounds import StreamLoop

OWN_FREQUENCIES = 20
"""Of each kernel of a client's own model: its inverse Hessians are kept after each round."""


async def run(setup: Setup, settings: OnlineSettings, cohort: Cohort, run: Run) -> Model | None:
    """Each round a client predicts its next rows, learns its own weights, and sends a step of M of the N kernels.

    Where statistics are shared it is `kernfed_server.methods.online.pooled` that runs.

    What leaves a client: the largest norm of a row and the range of its targets at the start (`summary`), where the job
    does not give them; then gradients of the kernels that it drew, over the probability of the draw (`gradient`); and
    sums of its errors (`metric`). A gradient of a single row tells much about it: `policy.min_rows` says how many rows
    it must stand for. The weights over kernels stay at the client.

    Source: Ghari & Shen (2022), Algorithm 2.
    """
    opened = await open_streams(setup, settings, cohort, run)
    if opened.pooled_frequencies:
        return await run_pooled(setup, settings, opened, cohort, run)
    try:
        bin_size, num_frequencies = settings.sizes(8 if cohort.float_epsilon < 1e-12 else 4)
    except ValueError as err:  # the table was read for statistics, which a client's policy refuses
        raise ConfigError(f"method: {err}") from err
    paper = settings.rates == "paper"
    weight_rate = fixed_rate(settings.weight_learning_rate, "weight_learning_rate", settings, opened) if paper else 0.0
    dictionary = await draw_dictionary(
        setup,
        settings,
        cohort,
        run,
        settings.dictionary_lengthscales,
        num_frequencies,
        mixing=Mixing.HEDGE if paper else Mixing.ADAPTIVE,
        bin_size=bin_size,
        exploration=settings.exploration,
        weight_learning_rate=weight_rate,
        own_frequencies=0 if paper or settings.experts == "kernels" else OWN_FREQUENCIES,
    )
    rate = fixed_rate(settings.learning_rate, "learning_rate", settings, opened) if paper else None
    least = settings.exploration / num_bins(dictionary.num_kernels, bin_size)
    kernels = KernelParameters(setup, settings, opened, dictionary, run, rate, least, bin_size)
    facts = OnlineFinding(
        method="online",
        rates=settings.rates,
        num_kernels=dictionary.num_kernels,
        kernels_per_round=bin_size,
        num_frequencies=num_frequencies,
        share="gradients",
        budget=GRADIENT_BUDGET if settings.budget == "auto" else settings.budget,
        budget_unit=settings.budget_unit,
        exploration=settings.exploration if bin_size < dictionary.num_kernels else None,
    )
    hindsight = InHindsight(dictionary, opened.loss)
    if rate is not None and opened.loss is Loss.SQUARED:
        hindsight.rates = Rates(rate, least)
    return await StreamLoop(setup, settings, cohort, run, opened.rows).go(kernels, facts, hindsight)


class KernelParameters:
    """The parameters of all kernels at the coordinator, and when each last moved."""

    def __init__(
        self,
        setup: Setup,
        settings: KernelStreamSettings,
        opened: Opened,
        dictionary: Dictionary,
        run: Run,
        learning_rate: float | None,
        least_probability: float,
        bin_size: int,
    ) -> None:
        """Begin at zero, or where a resumed run was.

        Args:
            setup: What was agreed on.
            settings: Of the method.
            opened: What was agreed on for the streams.
            dictionary: The kernels.
            run: The job's run.
            learning_rate: Of the paper's step; None: the step that adapts.
            least_probability: With which any kernel's bin is drawn.
            bin_size: Most kernels that a client may send.
        """
        self._setup, self._settings, self._opened = setup, settings, opened
        self.dictionary = dictionary
        self._run = run
        self._rate = learning_rate
        self._least = least_probability
        self._bin_size = bin_size
        self._told = False
        n = dictionary.num_kernels
        resumed = run.resumed
        if resumed is not None:
            self.state = AdaptiveStep(resumed["theta"], resumed["squares"], resumed["distance"])
            self._moved = resumed["moved"].copy()
        else:
            self.state = AdaptiveStep.start(n, dictionary.num_features)
            self._moved = np.zeros(n, dtype=np.int64)

    def changes(self, held: int) -> tuple[Array, Array]:
        """Numbers and parameters of the kernels that moved in round `held` or later; all of them for -1."""
        kernels = np.flatnonzero(self._moved >= held) if held > 0 else np.arange(len(self._moved))
        return kernels.astype(np.uint8), self.state.theta[kernels]

    def request(self, round_num: int, held: int, wait_s: float) -> OnlineStepRequest:
        """See `online_rounds.Method.request`."""
        kernels, theta = self.changes(held)
        return OnlineStepRequest(
            round_num=round_num,
            base=held,
            num_features=self.dictionary.num_features,
            kernels=kernels,
            theta=theta,
            batch_rows=self._settings.batch_rows,
            wait_s=wait_s,
        )

    def absorb(self, round_num: int, replies: Mapping[str, OnlineStep]) -> None:
        """See `online_rounds.Method.absorb`."""
        n = self.dictionary.num_kernels
        steps = []
        for client, reply in replies.items():
            kernels = reply.kernels.astype(np.intp)
            if (
                not 0 < len(kernels) <= self._bin_size
                or kernels.max() >= n
                or len(set(kernels.tolist())) < len(kernels)
            ):
                self._run.note(f"{client} sent kernels that it cannot have drawn; its step does not count")
                continue
            if self.sound(client, kernels, reply.gradient):
                steps.append(ClientStep(kernels, reply.gradient, reply.num_samples))
        if steps:
            self.move(round_num, pool(steps, n, self.dictionary.num_features, self._least))

    def sound(self, client: str, kernels: Array, gradient: Array) -> bool:
        """Whether rows can give these gradients, (B, 2 D); else they do not count, and the job names the client."""
        opened = self._opened
        most = most_gradient(
            self.state.theta, opened.loss, opened.outlier_spans, self._least, self._settings.regularisation
        )
        norms = np.sqrt(np.square(gradient).sum(axis=1))
        if bool((norms <= most[kernels] * (1.0 + 1e-3)).all()):  # parameters may have travelled in float32
            return True
        self._run.note_first(
            f"gradients of {client}",
            f"{client} sent gradients that its rows cannot have, which do not count: of norm {norms.max():.3g}, "
            f"where rows within the agreed ranges give at most {most[kernels].max():.3g}",
        )
        return False

    def sound_losses(self, client: str, losses: Array, norms: Floats) -> bool:
        """Whether rows can give these losses of all kernels, whose parameters have at most these norms; as `sound`."""
        if len(losses) != self.dictionary.num_kernels:
            return False
        opened = self._opened
        most = most_loss(norms, opened.loss, opened.outlier_spans, self._settings.regularisation)
        if bool(((losses >= 0.0) & (losses <= most * (1.0 + 1e-3))).all()):
            return True
        self._run.note_first(
            f"losses of {client}",
            f"{client} sent losses that its rows cannot have, which do not count: from {losses.min():.3g} to "
            f"{losses.max():.3g}, where rows within the agreed ranges give 0 to {most.max():.3g}",
        )
        return False

    @property
    def norms(self) -> Floats:
        """Of each kernel's parameters, shape (N,)."""
        found: Floats = np.sqrt(np.square(self.state.theta).sum(axis=1))
        return found

    def own_norms(self, round_num: int) -> Floats:
        """Largest norms that a client's own parameters can have in a round, where it moves them by itself, (N,)."""
        assert self._rate is not None  # noqa: S101  # of a step that does not adapt
        opened = self._opened
        rounds = (round_num - self._moved).astype(np.float64)
        spans, penalty = opened.outlier_spans, self._settings.regularisation
        return most_parameter(self.norms, rounds, opened.loss, spans, self._rate, penalty)

    def move(self, round_num: int, pooled: Pooled) -> None:
        """Step along what clients sent."""
        bend = LOSSES[self._opened.loss].curvature
        if self._rate is None:
            self.state = self.state.update(pooled, bend)
        else:
            theta, bounded = paper_step(self.state.theta, pooled, self._rate, 2.0 / bend)
            self.state = AdaptiveStep(theta, self.state.squares, self.state.distance)
            if bounded and not self._told:
                self._told = True
                self._run.note(
                    f"round {round_num}: learning rate {self._rate:.4g} times the importance weights is above what is "
                    f"stable for {bounded} kernels; their step is bounded from here on"
                )
        self._moved[pooled.pull > 0.0] = round_num

    def place(self, round_num: int, kernel: int, theta: Array) -> None:
        """Put the parameters of one kernel in place."""
        state = self.state
        moved = state.theta.copy()
        moved[kernel] = theta
        self.state = AdaptiveStep(moved, state.squares, state.distance)
        self._moved[kernel] = round_num

    def to_arrays(self) -> Mapping[str, Array]:
        """See `online_rounds.Method.to_arrays`."""
        state = self.state
        moved = self._moved.copy()  # is written while the next round goes on
        return {"theta": state.theta, "squares": state.squares, "distance": state.distance, "moved": moved}

    def model(self, arrays: Arrays, round_num: int) -> Model:
        """See `online_rounds.Method.model`."""
        return parameters(self._setup, self._opened, self.dictionary, arrays["theta"].copy(), round_num)
