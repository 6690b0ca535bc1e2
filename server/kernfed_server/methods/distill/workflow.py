"""Ensemble distillation: clients learn from each other's predictions on public points, each with a model of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.errors import ConfigError, InvalidReplyError
from kernfed.features.kernels import KernelSpec, check_kernel
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.maths.points.kernels import gram
from kernfed.maths.sampling import inclusion_probabilities, num_drawn, sample_clients
from kernfed.maths.settling import progress
from kernfed.memory import require_bytes
from kernfed.methods.distill.consensus import Deregulariser, remember
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed.methods.distill.finding import DistillationFinding
from kernfed.methods.distill.messages import (
    DistillRequest,
    KeepDistilledRequest,
    KeepPublicSetRequest,
    LookUpPublicSetRequest,
    MeasureDistilledRequest,
    OwnModelKept,
    PublicPredictions,
    StartDistillationRequest,
)
from kernfed.methods.distill.public_set import pack, sha256, unpack
from kernfed.methods.distill.settings import PLAIN_RIDGE, DistillSettings
from kernfed.methods.finding import BegunFinding
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.evaluation import measured, measured_once
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import State
from kernfed_server.methods.base import Workflow, alike
from kernfed_server.methods.distill.former import begun_with
from kernfed_server.methods.distill.state import Iteration
from kernfed_server.methods.distill.targets import AgreedTargets, agree_targets, check_points
from kernfed_server.methods.distill.tuning import Tuned, resumed, tune
from kernfed_server.methods.distill.words import Ending, ending, kept_notes, public_set_notes

_REFUSED = "gave an answer that was refused"
_ROWS = "total rows"
"""Name of the rows of all clients, among what is agreed on; it is agreed on last."""


async def run(setup: Setup, settings: DistillSettings, cohort: Cohort, run: Run) -> PublicConsensus:
    """Iterate: clients predict the public points, the coordinator averages, de-regularises, and sends that back.

    What leaves a client: in each round it is asked in, its predictions on the public points (`prediction`), and sums of
    errors where a round is measured (`metric`). Before round 1, where the job leaves its ridge or its lengthscale open,
    one sum of errors for each that is tried (`metric`). The coordinator learns these per client, and nothing of a
    client's model, kernel or ridge. The public set goes to a client once, and is kept there by its digest.

    Source: distillation paper (see `kernfed.methods.distill.consensus`), Algorithms 1 to 3; its steps "update" and
    "predict" are one trip here, so T rounds are T trips, and one more in which each client fits the last consensus and
    keeps its model.
    """
    asked = settings
    settings, former = begun_with(asked, run.resumed)
    if former:
        run.note(former)
        run.publish(BegunFinding.of("method", asked.plan(), settings.plan()))
    public = await asyncio.to_thread(unpack, setup.files[settings.public], len(setup.schema.features))
    job = _Distillation(setup, settings, cohort, run, public)
    await job.prepare()
    run.sound.leave_by(job.left, job._alone)
    state = Iteration.resume(run.resumed, cohort.clients) if run.resumed else Iteration.start(cohort.clients)
    if state.finished:
        return job.result(state)
    async for round_num in run.rounds(settings.rounds):
        predictions = job.counting(await job.predictions(state, round_num), state, round_num)
        new = state.mean_of(predictions, round_num, cohort.clients, keeps=settings.keeps_predictions)
        before, state.consensus = state.consensus, remember(state.consensus, new, round_num, job.exponent)
        state.note_round(before, predictions, job.targets.deviation)
        if state.diverged:
            raise job.diverged(state, round_num)
        if round_num == 1:
            job.note_public_set(state)
        arrived = job.arrived(state, round_num)
        state.finished = arrived or round_num == settings.rounds
        if not state.finished:
            await asyncio.to_thread(job.set_targets, state, round_num, tuple(predictions))
        await job.close(state, round_num)
        if state.finished:
            break
    return job.result(state)


@dataclass
class _Distillation:
    """One job, and what its rounds share."""

    setup: Setup
    settings: DistillSettings
    cohort: Cohort
    run: Run
    public: Floats
    """Public points in the units of the data, shape (N_p, P)."""
    baseline: RoundMetrics = field(default_factory=RoundMetrics)
    deregulariser: Deregulariser | None = None
    content: bytes = b""
    """The public set as it is sent, and its digest."""
    digest: str = ""
    targets: AgreedTargets = field(default_factory=AgreedTargets)
    tuned: Tuned = field(default_factory=lambda: Tuned(PLAIN_RIDGE))
    kernel: KernelSpec | None = None
    """With the lengthscales that the clients take."""

    @property
    def all_take_part(self) -> bool:
        return self.settings.client_fraction == 1.0

    @property
    def exponent(self) -> float:
        q = self.settings.memory_exponent
        if isinstance(q, str):
            return 0.0 if self.all_take_part or self.settings.keeps_predictions else 0.501
        return q

    @property
    def nothing(self) -> Floats:
        """Targets that stand for none, of the right shape."""
        return np.zeros((len(self.public), self.setup.num_outputs))

    async def prepare(self) -> None:
        """Give every client the public set, prepare its model, and measure what it has without the others."""
        settings, setup = self.settings, self.setup
        if strange := self.cohort.strangers(settings.participation):
            raise ConfigError(
                f"method.participation names {', '.join(strange)}, and the clients of this job are "
                f"{', '.join(self.cohort.clients)}; name those"
            )
        kernel = KernelSpec(settings.kernel, setup.agreed.spec.lengthscales, settings.penalised_intercept)
        check_kernel(kernel, self.public.shape[1])
        check_points(self.public, setup.agreed.mean, setup.agreed.deviation, setup.schema.features)
        agreed = self.run.agreed
        begun = agreed.get(_ROWS) is not None
        self.targets = AgreedTargets.of_json(
            await agreed.once("targets", lambda: agree_targets(setup, self.cohort, self.run))
        )
        self.tuned = await self._tune(kernel)
        kernel = self.tuned.kernel(kernel)
        self.kernel = kernel
        self.content = await asyncio.to_thread(pack, self.public)
        self.digest = await asyncio.to_thread(sha256, self.content)
        gate = Gate(self.cohort, self.run, strict=setup.strict)
        if not begun:
            await self._hand_out(gate)
        self.cohort.recall(self._public_set())  # to a client that loses its state it is sent again, with the rest
        alpha = 0.0 if isinstance(settings.alpha, str) else settings.alpha
        if alpha == 0.0 and len(self.cohort.clients) == 1:
            alpha = 0.5
            self.run.note("one client has no others to learn from: alpha is 0.5, since its share of the rows is all")

        async def count() -> int:
            return sum(setup.agreed.num_rows[client] for client in self.cohort.clients)

        start = StartDistillationRequest(
            sha256=self.digest,
            kernel=kernel,
            ridge=self.tuned.ridge,
            alpha=alpha,
            total_rows=await agreed.once(_ROWS, count),
            seed=rng.seed(setup.schema.seed, "distill"),
            free_intercept=settings.free_intercept,
            pooled_penalty=self.tuned.pooled_penalty,
            target_mean=self.targets.sent_mean if settings.free_intercept else (),
        )
        if begun:
            self.cohort.recall(start)
        else:
            await gate.ask(start)
        measure = MeasureDistilledRequest(
            trained_round=0, targets=self.nothing, include_personal=False, include_local=True
        )
        self.baseline = await measured_once(self.run, "models alone", lambda: self._measure(measure))
        if settings.deregularise == "paper":
            self.deregulariser = await asyncio.to_thread(self._factor, kernel)

    async def _tune(self, kernel: KernelSpec) -> Tuned:
        """Ridge and lengthscale, as an earlier life of the run took them or by what clients tell now."""
        former = resumed(self.run.resumed)
        if former is not None:
            return former

        async def ask() -> dict[str, Any]:
            return asdict(await tune(self.setup, self.settings, self.cohort, self.run, kernel, self.targets.deviation))

        return Tuned(**await self.run.agreed.once("tuned", ask))

    async def _hand_out(self, gate: Gate) -> None:
        """Send the public set to those who lack it."""
        known = await gate.ask(LookUpPublicSetRequest(sha256=self.digest))
        lacking = [client for client, reply in known.items() if not reply.known]
        if lacking:
            await gate.ask(self._public_set(), clients=lacking)
        self.run.note(
            f"public set of {len(self.public)} points, {self.digest[:12]}…: sent to {', '.join(lacking) or 'nobody'}"
            + ("" if len(lacking) == len(self.cohort.clients) else "; the others have it")
        )

    async def predictions(self, state: Iteration, round_num: int) -> dict[str, PublicPredictions]:
        """One round's replies; with drawn clients, of those drawn."""
        if self.all_take_part:
            return await self.cohort.ask(self._request(state, round_num - 1))
        settings, seed = self.settings, self.setup.schema.seed
        drawn = sample_clients(self.cohort.clients, settings.client_fraction, seed, round_num, settings.participation)
        if self.settings.uploads == "current":
            return await self.cohort.ask(self._request(state, round_num - 1), clients=drawn, drawn=True)
        asked = {client: self._request(state, state.trained[client]) for client in drawn}
        return await self.cohort.ask_each(asked, drawn=True)

    def set_targets(self, state: Iteration, round_num: int, answered: Iterable[str]) -> None:
        """Targets of this round, for those who fit them: V, or W where the coordinator makes it (Algorithm 2)."""
        assert state.consensus is not None  # noqa: S101  # a round was closed
        state.targets[round_num] = self.deregulariser(state.consensus) if self.deregulariser else state.consensus
        if self.settings.uploads == "stale" and not self.all_take_part:
            state.trained.update(dict.fromkeys(answered, round_num))
            needed = set(state.trained.values())
        else:
            state.trained = dict.fromkeys(state.clients, round_num)
            needed = {round_num}
        state.targets = {r: w for r, w in state.targets.items() if r in needed}

    def arrived(self, state: Iteration, round_num: int) -> bool:
        """Whether the limit is near enough; never told with drawn clients, whose draws move the consensus.

        Nor is it where last predictions stand for a client, which may yet move it.
        """
        if not (self.settings.tolerance > 0 and self.exponent == 0.0 and self.all_take_part and state.movements):
            return False
        found = progress(state.movements)
        near = found.distance is not None and found.distance <= self.settings.tolerance and len(state.movements) >= 2
        return near and not state.standing(round_num)

    async def close(self, state: Iteration, round_num: int) -> None:
        """Measure where it is due, let clients keep their models at the end, and record the round."""
        assert state.consensus is not None  # noqa: S101  # a round was closed
        training = self._training(state)
        better, blend = self.settings.keep == "better", self.settings.keep == "blend"
        metrics = RoundMetrics(training=training)
        if state.finished or self.run.evaluates(round_num, self.settings.rounds):
            measure = MeasureDistilledRequest(
                trained_round=round_num,
                targets=state.consensus,
                include_personal=True,
                include_local=False,
                choose=state.finished and better,
                blend=state.finished and blend,
            )
            found = await self._measure(measure)
            self.run.came_to({"consensus": state.consensus}, found)
            metrics = replace(self.baseline.merged(found), training=training)
        if state.finished:
            request = KeepDistilledRequest(trained_round=round_num, targets=state.consensus, choose=better, blend=blend)
            kept = await self.run.optional(self.cohort.ask(request), "not all clients could keep their models")
            for note in kept_notes(kept) if better or blend else ():
                self.run.note(note)
            absent = state.standing(round_num) if self.all_take_part else {}
            end = ending(state.movements, self.settings, round_num, all_take_part=self.all_take_part, absent=absent)
            self.run.ends(end.arrival)
            self.run.publish(self._finding(state, round_num, end, kept))
        await self.run.record(round_num, {**state.to_arrays(), **self.tuned.to_arrays()}, metrics)

    def result(self, state: Iteration) -> PublicConsensus:
        """The consensus, for everyone."""
        return self._consensus(state.consensus)

    def _request(self, state: Iteration, trained_round: int) -> DistillRequest:
        return DistillRequest(
            trained_round=trained_round,
            targets=state.targets[trained_round] if trained_round else self.nothing,
            deregularise=self.settings.deregularise is True,
        )

    def _factor(self, kernel: KernelSpec) -> Deregulariser:
        num = len(self.public)
        require_bytes(
            4 * 8 * num * num,
            f"de-regularisation on {num} public points",
            "use fewer public points, or method.deregularise = true",
        )
        scaled = (self.public - self.setup.agreed.mean) / self.setup.agreed.deviation
        undone = self.settings.undone_ridge
        ridge = self.tuned.ridge if isinstance(undone, str) else undone
        made = Deregulariser(gram(kernel, scaled), ridge, free=self.settings.free_intercept)
        if made.rank < num:
            self.run.note(
                f"the kernel matrix of the {num} public points is singular to working precision (points repeat, or lie "
                f"close together): de-regularised on the {made.rank} dimensions that it spans"
            )
        return made

    def _public_set(self) -> KeepPublicSetRequest:
        return KeepPublicSetRequest(sha256=self.digest, content=np.frombuffer(self.content, dtype=np.uint8))

    async def _measure(self, request: MeasureDistilledRequest) -> RoundMetrics:
        return await measured(self.cohort.ask(request, optional=True), self.setup.schema.task, self.run)

    def _training(self, state: Iteration) -> Scores:
        if not state.movements:
            return {}
        found = progress(state.movements)
        scores = {"movement": found.movement}
        if self.all_take_part and found.contraction is not None:
            scores["contraction"] = found.contraction
        return scores

    def counting(self, replies: Mapping[str, PublicPredictions], state: Iteration, round_num: int) -> dict[str, Floats]:
        """Predictions that make the consensus of a round: the replies', but for those of clients that are left out.

        What a client told that is left out now may be in the consensus for long: of points that no client has rows
        near, nobody tells otherwise. So the consensus begins anew, with the first predictions of all others.
        """
        told = {c: np.asarray(r.predictions, dtype=np.float64) for c, r in replies.items() if c not in state.out}
        refused = {c for c, fault in self.cohort.faults.items() if fault.reason == InvalidReplyError.reason} - state.out
        far = self.targets.far_off(told, state.consensus, state.fitted) | dict.fromkeys(refused, _REFUSED)
        anew = state.leave_out(far, round_num)
        again = ", and the consensus begins again with the first ones of the others" if anew else ""
        for client in sorted(far):
            words = f"{client} {far[client]}: its predictions do not count{again}"
            self.run.note(f"{words}; look at its data and at its own model")
        for client in state.out:
            self.cohort.discount(client, DistillRequest.step)
        state.far_rows.update({client: reply.far_rows for client, reply in replies.items()})
        counted = {client: values for client, values in told.items() if client not in far}
        state.begun = counted | state.begun
        return {client: state.begun[client] for client in counted} if anew else counted

    def diverged(self, state: Iteration, round_num: int) -> DivergedRunError:
        """The error of a consensus that moves away, with the last one that was any good."""
        remedy = {
            "paper": "method.deregularise = true, where each client undoes the shrinkage of its own model, or false",
            True: "method.deregularise = false, or a larger method.ridge",
            False: "a larger method.ridge, or leave out the client whose model does not follow its targets",
        }[self.settings.deregularise]
        size = state.steps[-1] if state.steps else float("inf")
        message = (
            f"round {round_num}: the consensus moves away instead of settling. It moved by {size:.3g} in this round, "
            f"and the spread of the clients' targets and first predictions is {state.scale:.3g}. Clients keep the "
            f"models that they had; the job leaves the last consensus that was steady. Use {remedy}"
        )
        return DivergedRunError(message, model=self._consensus(state.steadiest), measure=self._alone)

    async def left(self, of: State) -> PublicConsensus:
        """The consensus of a round that was measured, for a run that diverges later in another way."""
        return self._consensus(of["consensus"])

    async def _alone(self, _of: State | None = None) -> RoundMetrics:
        """Metrics of what clients have where the consensus moved away: their own models, measured before round 1."""
        return self.baseline

    def note_public_set(self, state: Iteration) -> None:
        """Say where the public set is too small, or too far from the clients' rows."""
        rows = {client: self.setup.agreed.num_rows[client] for client in self.cohort.clients}
        for note in public_set_notes(len(self.public), rows, state.far_rows):
            self.run.note(note)

    def _consensus(self, values: Floats | None) -> PublicConsensus:
        assert values is not None  # noqa: S101  # a round was closed
        schema = self.setup.schema
        return PublicConsensus(schema.task, schema.features, self.setup.agreed.classes, self.public, values)

    def _finding(
        self, state: Iteration, round_num: int, end: Ending, kept: Mapping[str, OwnModelKept]
    ) -> DistillationFinding:
        return DistillationFinding(
            round_num,
            len(self.public),
            end.words,
            tuple(state.movements),
            state.distances(kept),
            end.arrived,
            end.distance,
            self.tuned.ridge,
            self.kernel.lengthscales if self.kernel else (),
        )


def _counted(setup: Setup, settings: DistillSettings) -> tuple[Mapping[str, float], str]:
    """Clients count the same, or as often as they are drawn."""
    if settings.keeps_predictions or not settings.participation:
        return alike(setup, settings)
    names = sorted(setup.agreed.num_rows)
    count = num_drawn(len(names), settings.client_fraction)
    often = inclusion_probabilities([settings.participation.get(name, 1.0) for name in names], count)
    return dict(zip(names, often.tolist(), strict=True)), "how often they are drawn"


WORKFLOWS = {"distill": Workflow(run, weights=_counted)}
