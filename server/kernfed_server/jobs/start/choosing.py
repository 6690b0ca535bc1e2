"""The ridge, and the lengthscale, with which folds of the clients' training rows are predicted best.

Test rows have no part in it. What leaves a client, for each lengthscale that is tried: sums of features and targets
over folds of its training rows (`sufficient_statistic`). All ridges are judged by the same sums.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernfed.errors import QuorumNotMetError
from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.features.ridge_rule import ridge_by_rows
from kernfed.features.spec import FeatureSpec, make_spec
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import Kind
from kernfed.federation.messages.choosing import MOST_FEATURES, TrainingFoldSumsRequest
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.maths.choosing.by_folds import Told, held_out, ridges_around
from kernfed.maths.choosing.lengthscales import factor, next_step
from kernfed.maths.folds import FOLDS
from kernfed.maths.tasks import TASKS
from kernfed.methods.choice import ChoiceFinding, Tried, known
from kernfed.methods.shared_settings import AUTO, AUTO_IF_MANY, MANY_ROWS
from kernfed.section import MethodSection
from kernfed.wording import listed, number
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.jobs.state import json_array

CHOSEN_RIDGE = "chosen ridge"
"""Under which name a run keeps the ridge that rows kept apart chose, and in words how."""
_MOST_SUMS = 1 << 27
"""Most that the squares of the features' number, over all clients and folds, may come to: 512 MiB of sums."""


@dataclass(frozen=True, slots=True)
class RidgePlan:
    """Which ridges a job's settings leave open."""

    tried: Sequence[float]
    usual: float | None
    """The one without a choice; None: the job lists some, and none of them is."""
    chosen: bool
    """Whether the choice is the job's ridge; else lengthscales are compared by them, and the job has its own."""


def ridge_plan(method: MethodSection, spec: FeatureSpec, num_rows: float, *, searched: bool) -> RidgePlan:
    """The ridges to try for settings of a method.

    Args:
        method: The settings.
        spec: The feature map.
        num_rows: Training rows of all clients.
        searched: Whether a ridge that the settings leave open can be chosen.
    """
    rule, head = getattr(method, "ridge", None), getattr(method, "loss", "ridge") != "ridge"
    by_rows = ridge_by_rows(spec, round(num_rows))
    if rule is None or head or "ridge" in method.idle_keys():
        return RidgePlan(ridges_around(by_rows), by_rows, chosen=False)
    if isinstance(rule, list) and searched:
        return RidgePlan(sorted(set(rule)), None, chosen=True)
    if searched and (rule == AUTO or (rule == AUTO_IF_MANY and num_rows >= MANY_ROWS)):
        return RidgePlan(ridges_around(by_rows), by_rows, chosen=True)
    usual = float(rule) if isinstance(rule, int | float) else by_rows
    return RidgePlan((usual,), usual, chosen=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """Asks the clients and compares."""

    ridges: RidgePlan
    intercept: bool
    num_outputs: int
    num_rows: Mapping[str, int]
    cohort: Cohort
    run: Run

    async def ridge(self, spec: FeatureSpec) -> ChoiceFinding | str:
        """The ridge that is best for a map; or why there is none, in words."""
        return await self._compared(spec, (1.0,), scaled=False)

    async def lengthscale(self, spec: FeatureSpec, candidates: Sequence[float]) -> ChoiceFinding | str:
        """The lengthscale, and the ridge where it is open too, that are best; or why there are none, in words.

        Args:
            spec: The map with the usual lengthscale.
            candidates: The lengthscales to choose among; empty: multiples of the usual one.
        """
        listed_factors = tuple(sorted({scale / spec.lengthscales[0] for scale in candidates}))
        return await self._compared(spec, listed_factors, scaled=True)

    async def _compared(self, spec: FeatureSpec, factors: tuple[float, ...], *, scaled: bool) -> ChoiceFinding | str:
        members: tuple[str, ...] = ()
        counted, told, losses = self.cohort.counted(self.num_rows), dict[float, Told](), dict[float, float]()
        while (times := _next_factor(factors, losses)) is not None:
            request = self._request(spec, times)
            if request is None:
                return f"for {spec.num_features} features are too many to choose by, and {MOST_FEATURES} are the most"
            asked = members or self.cohort.clients
            try:
                replies = await self.cohort.ask(request, clients=asked, everyone=True, optional=True)
            except QuorumNotMetError as err:
                if not members:
                    return f"for it cannot be chosen by training rows kept apart: {err}"
                replies = {}
            if members and tuple(replies) != members:
                lost = _without(members, replies)
                scale = number(request.features.lengthscales[0])
                why = self._why(lost, "its policy refuses random features of it")
                self.run.note(f"lengthscale {scale} is not tried, for not all clients tell of it: {why}")
                losses[times] = math.inf
                continue
            members = tuple(replies)
            shares = [counted[client] / max(1, self.num_rows[client]) for client in members]
            sums = [replies[client].sums for client in members]
            found = await asyncio.to_thread(held_out, sums, shares, self.ridges.tried, intercept=self.intercept)
            if not found.rows.size:
                return "for no client has enough rows to keep some apart"
            told[times], losses[times] = found, float(found.means.min())
        finding = self._finding(spec, told, listed_factors=bool(factors), scaled=scaled)
        if silent := _without(self.cohort.clients, members):
            why = self._why(silent, f"its policy lets no {Kind.SUFFICIENT_STATISTIC} out")
            words = f"{finding.words}; of {listed(silent)} no rows are among these: {why}"
            finding = replace(finding, silent=silent, words=words)
        self.run.publish(finding)
        return finding

    def _request(self, spec: FeatureSpec, times: float) -> TrainingFoldSumsRequest | None:
        """For a map whose lengthscales are so many times as large, or for as much of it as there is room for."""
        most = min(MOST_FEATURES, math.isqrt(_MOST_SUMS // (FOLDS * max(1, len(self.cohort.clients)))))
        num, scales = spec.num_frequencies, [scale * times for scale in spec.lengthscales]
        if spec.num_features > most:
            if spec.kernel not in RANDOM_KERNELS:
                return None
            num = max(1, num * most // spec.num_features)
        tried = make_spec(spec.kernel, spec.form, spec.num_columns, scales, num, spec.seed, spec.law)
        return TrainingFoldSumsRequest(features=tried, num_folds=FOLDS, num_outputs=self.num_outputs)

    def _why(self, clients: Sequence[str], by_policy: str) -> str:
        """Why clients did not answer: one without a fault may not."""
        return listed([f"{client} ({self.cohort.faults.get(client, by_policy)})" for client in clients])

    def _finding(
        self, spec: FeatureSpec, told: Mapping[float, Told], *, listed_factors: bool, scaled: bool
    ) -> ChoiceFinding:
        ridges, factors = self.ridges.tried, sorted(told)
        models = [(times, ridge) for times in factors for ridge in ridges]
        whole = Told(np.concatenate([told[times].errors for times in factors]), told[factors[0]].rows)
        usual = None
        if self.ridges.usual is not None and not (scaled and listed_factors):
            usual = models.index((1.0, self.ridges.usual))
        best, means, spreads = whole.best(usual), whole.means, whole.standard_errors()
        times, ridge = models[best]
        rows, error = f"{whole.rows.sum():.0f} training rows kept apart", _error(means[best], spreads[best])
        if best == usual:
            words = f"as without a choice, for none predicts {rows} better by more than a standard error; {error}"
        else:
            words = f"predicts {rows} best; {error}"
        if usual not in (None, best):
            words += f", and without a choice {_error(means[usual], spreads[usual], '')}"
        words += _at_end("ridge", ridge, ridges if best != usual else ())
        words += _at_end("lengthscale", times, factors if best != usual else ())
        scales = {t: spec.lengthscales[0] * t if scaled else None for t in factors}
        tried = tuple(
            Tried(r, known(mean), known(spread), scales[t])
            for (t, r), mean, spread in zip(models, means, spreads, strict=True)
        )
        return ChoiceFinding(
            ridge=ridge if self.ridges.chosen else None,
            lengthscale=scales[times],
            rows=round(float(whole.rows.sum())),
            tried=tried,
            words=words,
        )


async def choose_lengthscale(
    job: JobFile, agreement: Agreement, cohort: Cohort, run: Run, *, searched: bool
) -> Agreement:
    """Take the lengthscale with which folds of the clients' training rows are predicted best, by the median's map.

    A ridge that the job leaves open is chosen with it.

    Args:
        job: Whose lengthscale is to be chosen.
        agreement: With the median.
        cohort: The clients, whose rows are scaled.
        run: Of the job; keeps the ridge.
        searched: Whether a ridge that the settings leave open can be chosen.
    """
    num_rows = {client: agreement.num_rows[client] for client in cohort.clients}
    total = sum(cohort.counted(num_rows).values())
    ridges = ridge_plan(job.method, agreement.spec, total, searched=searched)
    chooser = Chooser(
        ridges=ridges,
        intercept=job.features.intercept,
        num_outputs=TASKS[data_schema(job).task].num_outputs(agreement.classes),
        num_rows=num_rows,
        cohort=cohort,
        run=run,
    )
    found = await chooser.lengthscale(agreement.spec, job.features.candidates)
    if isinstance(found, str) or found.lengthscale is None:
        run.note(f"the lengthscale stays at the median, {found}")
        return agreement
    run.note(f"lengthscale {found.lengthscale:.6g}: {found.words}")
    if found.ridge is not None:
        run.agreed.put(CHOSEN_RIDGE, json_array([found.ridge, f"chosen with the lengthscale; {found.words}"]))
    return replace(agreement, spec=replace(agreement.spec, lengthscales=(found.lengthscale,)))


def _next_factor(factors: tuple[float, ...], losses: Mapping[float, float]) -> float | None:
    """The next of those listed; where none is, the next multiple of the usual lengthscale, for as long as one helps."""
    if factors:
        return next((times for times in factors if times not in losses), None)
    step = next_step({round(2.0 * math.log2(times)): loss for times, loss in losses.items()})
    return None if step is None else factor(step)


def _at_end(what: str, taken: float, tried: Sequence[float]) -> str:
    """A warning that others, beyond the last one of those that were tried, may be better; empty: it is none."""
    if len(tried) < 2 or taken not in (tried[0], tried[-1]):
        return ""
    end, beyond = ("smallest", "smaller") if taken == tried[0] else ("largest", "larger")
    return f"; the {end} {what} that was tried was best, so {beyond} ones may be better still: list some"


def _error(mean: float, spread: float, what: str = "mean squared error ") -> str:
    return f"{what}{number(mean)}" + (f" ± {number(spread)}" if math.isfinite(spread) else "")


def _without(clients: Sequence[str], found: Container[str]) -> tuple[str, ...]:
    return tuple(client for client in clients if client not in found)
