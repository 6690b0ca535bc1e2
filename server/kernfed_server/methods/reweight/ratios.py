"""Density ratios at every client before round 1: samples, the pool that is sent on, and notes for people."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import DataError, InvalidReplyError, JobError
from kernfed.federation.cohort import Cohort
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.label_shift import LabelShift
from kernfed.methods.reweight.messages import (
    APART,
    MIXTURE,
    UNWEIGHTED,
    ClassPriorRequest,
    LabelRatiosRequest,
    LookUpRatiosRequest,
    MatchRatiosRequest,
    PriorSource,
    RatiosHeld,
    RatiosKept,
    RatioSummary,
    ShareSampleRequest,
    UnlabelledSample,
    UseRatiosRequest,
)
from kernfed.methods.reweight.mixture import class_ratios
from kernfed.methods.reweight.mixture_messages import ClassCountsRequest, MixtureClassesRequest
from kernfed.methods.reweight.ratio_spec import RatioFeatures, RatioInput
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed.wording import listed
from kernfed_server.jobs.gate import Gate
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run
from kernfed_server.methods.reweight import rules
from kernfed_server.methods.reweight.classes import pooled_priors
from kernfed_server.methods.reweight.mixture import Plan, in_range, mix

FEW_EFFECTIVE = 0.05
"""Share of its rows below which a client's effective sample size is warned about."""
MUCH_UNCOVERED = 0.1
LEAST_SHARE = 1e-9
"""Of a client whose rows count for nothing, so that a mean over such clients alone exists."""


@dataclass
class Reweighting:
    """One job, and what its parts share."""

    setup: Setup
    settings: ReweightSettings
    cohort: Cohort
    run: Run
    scope: str = ""
    """The scope that the job goes on with."""
    summaries: Mapping[str, Mapping[str, RatioSummary]] = field(default_factory=dict)
    """Variant to client to what is told of its ratios."""
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Client to what it shared, in words."""
    words: list[str] = field(default_factory=list)
    num_columns: int = 0
    """Columns of what ratios are fitted on."""
    skipped: tuple[str, ...] = ()
    """Variants to compare with whose ratios do not exist at some client, so that they are not trained."""
    mixed: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Clients whose rows make the mixture, each with the bounds of its mean ratio."""
    looked: Mapping[str, RatiosHeld] = field(default_factory=dict)
    """What clients told of themselves."""
    choice: rules.Choice | None = None
    """Between the weighted and the unweighted model, once it was made."""

    def __post_init__(self) -> None:
        """Begin with the scope asked for, by the rules that the run began with."""
        state = self.run.resumed
        if state is not None:
            self.settings = rules.of_stored(self.settings, state)
            self.mixed = rules.mixture_of(state)
            self.choice = rules.choice_of(state)
        self.scope = self.scope or self.settings.scope

    @property
    def variant(self) -> str:
        """Name of the job's own weighted model among the variants: its scope, and of what its ratios are."""
        return MIXTURE if self.settings.ratios.mixes and self.scope == "all" else self.scope

    def kept(self) -> dict[str, Array]:
        """What every checkpoint holds, so that a run goes on by the rules that it began with."""
        return rules.kept(self.mixed, self.choice)

    @property
    def gate(self) -> Gate:
        """Asks all clients; one without a valid answer stops the job, or is left out of it."""
        return Gate(self.cohort, self.run, strict=self.setup.strict)

    @property
    def variants(self) -> tuple[str, ...]:
        """Variants that are trained, the job's own model first."""
        others = [UNWEIGHTED, *(["own"] if self.scope != "own" else [])] if self.settings.compare else []
        return (self.variant, *(o for o in others if o not in self.skipped))

    @property
    def chooses(self) -> bool:
        """Whether the unweighted model can be the job's; with normalisation that clients keep there is no choice."""
        settings = self.settings
        return settings.deliver != "weighted" and UNWEIGHTED in self.variants and settings.network.batch_norm != "own"

    @property
    def apart(self) -> tuple[str, ...]:
        """Variants that are fitted without the rows kept apart, which then choose; the weighted one is first."""
        choosing = self.chooses and self.settings.deliver == "better"
        return (f"{self.variant}{APART}", f"{UNWEIGHTED}{APART}") if choosing else ()

    def client_weights(self, variant: str) -> Mapping[str, float]:
        """Weight of each client in means of a variant's training; unweighted rows are all worth themselves."""
        plain = variant.removesuffix(APART) == UNWEIGHTED
        rule = self.settings.client_weights
        shares = dict.fromkeys(self.setup.num_rows, 1.0) if rule == "equal" else self.setup.num_rows
        if variant.removesuffix(APART) == MIXTURE:  # weights have mean 1 at each client, whose mean ratio is its worth
            found = self.summaries[variant]
            each = {c: f.mean / f.total if c in self.mixed or not self.mixed else 0.0 for c, f in found.items()}
            return {c: shares[c] * max(value, LEAST_SHARE) for c, value in each.items()}
        if rule != "effective" or plain:
            return shares
        return {client: found.effective_rows for client, found in self.summaries[variant].items()}

    def seed(self, *names: str) -> int:
        """A seed of the job's, by name."""
        return rng.seed(self.setup.schema.seed, "reweight", *names)

    @property
    def features(self) -> RatioFeatures:
        """Map to the features that ratios are fitted on, and to the part of them that is shared."""
        return self.settings.ratios.map(self.seed("ratio features"))

    def say(self, text: str) -> None:
        """Tell the operator, now and in the report."""
        self.words.append(text)
        self.run.note(text)

    async def weigh(self) -> None:
        """Have every client hold ratios of all variants, and use them."""
        self._check()
        ratios = self.settings.ratios
        sums = self.variant == MIXTURE if ratios.source == "matching" else ratios.pools_classifier
        self.looked = await self.gate.ask(
            LookUpRatiosRequest(
                num_points=self.settings.num_points,
                features=self.features,
                distances=sums,
                seed=self.seed("sample"),
            ),
            fresh=True,
        )
        self._decide_map(self.looked)
        self._decide_scope(self.looked)
        for variant in self.variants:
            if variant != UNWEIGHTED:
                lacking = [c for c in self.cohort.clients if variant not in self.looked[c].held]
                if variant == MIXTURE and (lacking or not self._still_mixed()):
                    await self._mix()
                elif lacking:
                    await self._fit(variant, lacking, self.looked)
        weighted = [v for v in (*self.variants, *self.apart) if v.removesuffix(APART) != UNWEIGHTED]
        for variant in weighted:
            await self.use((variant,))
        self._warn()

    async def use(self, variants: tuple[str, ...]) -> dict[str, RatioSummary]:
        """Have clients weigh their rows by variants; a mixture that lost a client is found anew."""
        while True:
            found = await self.gate.ask(
                UseRatiosRequest(variants=variants), self._check_summary(variants[0]), fresh=True
            )
            if not any(v.removesuffix(APART) == MIXTURE for v in variants) or self._still_mixed():
                self.summaries = {**self.summaries, variants[0]: found}
                return found
            gone = sorted(set(self.mixed) - set(self.cohort.clients))
            self.say(f"{listed(gone)}: out of the job, so the mixture is that of the others, and ratios are found anew")
            await self._mix()

    def _still_mixed(self) -> bool:
        """Whether all whose rows make the mixture are in the job."""
        return bool(self.mixed) and set(self.mixed) <= set(self.cohort.clients)

    def _check_summary(self, variant: str) -> Callable[[str, RatioSummary], None]:
        def check(client: str, reply: RatioSummary) -> None:
            if variant.removesuffix(APART) != MIXTURE:
                return
            allowed = self.mixed.get(client)
            if allowed is not None and variant.endswith(APART):  # of half of the rows at least
                allowed = (0.0, 2.0 * allowed[1])
            if reply.total != 1.0 or (allowed is not None and not in_range(reply.mean, allowed)):
                raise InvalidReplyError(
                    f"{client} states a mean ratio of {reply.mean:.3g}, which cannot be by the sums that it sent"
                )

        return check

    async def _mix(self) -> None:
        """Find ratios to the mixture of the clients that are here, and have all keep them."""
        settings = self.settings
        shares = dict.fromkeys(self.setup.num_rows, 1.0) if settings.client_weights == "equal" else self.setup.num_rows
        if settings.ratios.source != "matching":
            await self._mix_classes({c: float(n) for c, n in shares.items()})
            return
        plan = Plan(
            settings.ratios.spec(self.seed("ratios")),
            self.features,
            settings.num_points,
            self.num_columns,
            self.seed("sample"),
        )
        while True:
            clients = tuple(c for c in self.cohort.clients if self.looked[c].shares_sums)
            found = await mix(self.gate, plan, self.looked, clients, {c: float(n) for c, n in shares.items()})
            self.mixed = dict(found.ranges)
            await self.gate.ask(found.request, fresh=True)
            if self._still_mixed():
                break
        self.sharing = {
            c: f"sums over its rows and {found.num_points[c]} test points" if c in found.num_points else "nothing"
            for c in self.cohort.clients
        }
        if few := [c for c, num in found.num_points.items() if num == 0]:
            self.say(
                f"{listed(few)}: fewer test points than policy.min_rows, so no sum over them leaves, and the model is "
                "for the test points of the others"
            )
        self.say(
            f"one ratio for all clients, of test points to the mixture of their training rows, from sums over "
            f"{len(self.mixed)} clients' rows: lengthscale {found.request.map.lengthscales[0]:.4g}, ridge "
            f"{found.ratio.ridge:.3g}; on rows held out better than equal weights by {100 * found.ratio.gain:.1f} %"
        )

    def _check(self) -> None:
        if self.settings.target is not None and self.settings.target not in self.cohort.clients:
            raise JobError(
                f"method.target is {self.settings.target!r}, which is not among the job's clients "
                f"({', '.join(self.cohort.clients)}); name one of them"
            )
        source = self.settings.ratios.source
        if source != "matching" and not TASKS[self.setup.schema.task].has_classes:
            raise JobError(
                f'method.ratios.source is "{source}", which is for classes, and the task is regression; use "matching"'
            )
        if self.setup.schema.backbone and self.features.source is not RatioInput.COLUMNS:
            raise JobError(
                f"the columns are those of data.backbone {self.setup.schema.backbone!r} already; remove "
                "method.ratios.features, or data.backbone to train on the data themselves"
            )

    def _decide_map(self, looked: Mapping[str, RatiosHeld]) -> None:
        """Points of all clients must lie in one space."""
        if len({(reply.fingerprint, reply.num_columns) for reply in looked.values()}) > 1:
            listed = "; ".join(f"{c}: {looked[c].fingerprint[:12]} ({looked[c].num_columns})" for c in sorted(looked))
            name = self.settings.ratios.backbone
            raise JobError(
                f"the clients' backbones {name!r} differ (fingerprints and columns: {listed}), so their points are not "
                f"comparable; give every client file the same source, weights and transforms in [backbones.{name}]"
            )
        self.num_columns = next(iter(looked.values())).num_columns

    def _decide_scope(self, looked: Mapping[str, RatiosHeld]) -> None:
        """Find the clients that share; refusals are dealt with before anything is asked for."""
        settings = self.settings
        if self.scope == "own" or settings.ratios.source != "matching":
            return
        if all(self.variant in reply.held for reply in looked.values()):  # found before a restart
            return
        mixes = self.variant == MIXTURE
        wanted = [settings.target] if settings.target else list(looked)
        refusing = sorted(c for c in wanted if not (looked[c].shares_sums if mixes else looked[c].shares))
        if not refusing:
            return
        names = ", ".join(refusing)
        if mixes:
            told = (
                f"{names}: the policy lets no sums over rows leave (`sufficient_statistic` or `mean_embedding` is not "
                "in policy.allow)"
            )
        else:
            told = f"{names}: the policy lets no unlabelled samples leave (`unlabelled_sample` is not in policy.allow)"
        if settings.on_refusal == "stop" or (settings.on_refusal == "leave-out" and len(refusing) == len(wanted)):
            others = (
                'method.on_refusal = "leave-out" goes on without their test points, ' if not settings.target else ""
            )
            raise JobError(
                f'scope = "{self.scope}" needs {_NEEDS[mixes]}, and not every client shares them; '
                f"nothing was sent\n  {told}\n"
                f'  use method.scope = "own", with which nothing leaves; {others}'
                'method.on_refusal = "own" goes on with own ratios; or the administrators of these clients allow it'
            )
        if settings.on_refusal == "own":
            self.scope = "own"
            self.say(f'{told}; the job goes on with scope = "own": every client uses its own test points')
        elif mixes:
            self.say(f"{told}; the weighted model is that of the other clients' rows, for their test points")
        else:
            self.say(f"{told}; the job goes on without their test points; their training rows are weighed all the same")

    async def _fit(self, variant: str, clients: list[str], looked: Mapping[str, RatiosHeld]) -> None:
        settings = self.settings
        if settings.ratios.source == "matching":
            await self._match(variant, clients, looked)
            return
        own = variant == "own"
        request = LabelRatiosRequest(
            variant=variant,
            own=own,
            test_priors=np.zeros((0, self._num_classes)) if own else await self._test_priors(),
            source=PriorSource(settings.ratios.source),
            seed=self.seed("black box"),
            optional=own and variant != self.scope,
        )
        await self._kept(request, clients)

    async def _test_priors(self) -> Floats:
        """Shares of the classes among the test points that count, (K, C), by client name."""
        settings = self.settings
        source, asked = PriorSource(settings.ratios.source), [settings.target] if settings.target else None
        if source is PriorSource.BLACK_BOX and settings.ratios.pools_classifier:
            shifts = await self._pooled_priors(asked)
        else:
            request = ClassPriorRequest(source=source, seed=self.seed("black box"))
            replies = await self.gate.ask(request, clients=asked)
            shifts = {
                c: LabelShift(_rounded(r.prior), r.smallest_singular_value, r.fallback) for c, r in replies.items()
            }
        for client in sorted(shifts):
            if reason := shifts[client].fallback:
                self.say(f"{client}: its test classes are taken to be those of its training rows: {reason}")
        if source is PriorSource.BLACK_BOX:
            told = {c: f"{shifts[c].smallest_singular_value:.3g}" for c in sorted(shifts)}
            if settings.ratios.pools_classifier:
                text = (
                    f"smallest singular value of the pooled classifier's confusion matrix: {next(iter(told.values()))}"
                )
            else:
                listed_values = ", ".join(f"{c} {value}" for c, value in told.items())
                text = f"smallest singular values of the classifiers' confusion matrices: {listed_values}"
            self.say(text)
        shared = "shares of its classes" + (", sums over its rows" if settings.ratios.pools_classifier else "")
        self.sharing = dict.fromkeys(shifts, shared)
        return np.array([shifts[c].prior for c in sorted(shifts)])

    async def _pooled_priors(self, asked: list[str] | None) -> dict[str, LabelShift]:
        silent = sorted(c for c in self.cohort.clients if not self.looked[c].shares_sums)
        if silent:
            self.say(
                f"{listed(silent)}: the policy lets no sums over rows leave, so the classifier is that of the other "
                "clients' rows"
            )
        if len(silent) == len(self.cohort.clients):
            raise JobError(
                "no client lets sums over rows leave, which the pooled classifier is made of; use "
                'method.ratios.classifier = "own", or have `sufficient_statistic` and `mean_embedding` in policy.allow'
            )
        shifts = await pooled_priors(
            self.gate,
            self.looked,
            self.cohort.clients,
            num_columns=self.num_columns,
            num_classes=self._num_classes,
            num_points=self.settings.num_points,
            seed=self.seed("black box"),
        )
        wanted = asked or self.cohort.clients
        if lacking := sorted(c for c in wanted if c not in shifts):
            self.say(f"{listed(lacking)}: no test points, so the model is for those of the others")
        if len(lacking) == len(wanted):
            raise DataError("there are no test points; give the data sets a test or an unlabelled partition")
        return {c: shift for c, shift in shifts.items() if c in wanted}

    async def _mix_classes(self, shares: Mapping[str, float]) -> None:
        """Ratios by class to the mixture of all training rows."""
        while True:
            tests = await self._test_priors()
            counts = await self.gate.ask(ClassCountsRequest(num_outputs=self._num_classes), fresh=True)
            rows = {c: np.asarray(reply.counts, np.float64) for c, reply in counts.items()}
            ratios, self.mixed, uncovered = class_ratios(tests, rows, shares)
            request = MixtureClassesRequest(variant=MIXTURE, ratios=ratios, uncovered=uncovered, note="")
            await self.gate.ask(request, fresh=True)
            if self._still_mixed():
                return

    async def _kept(self, request: MatchRatiosRequest | LabelRatiosRequest, clients: list[str]) -> None:
        """Have ratios fitted; a model that is only compared with is left out where they do not exist."""

        def check(client: str, reply: RatiosKept) -> None:
            if reply.lacking and not request.optional:
                raise InvalidReplyError(f"{client} found no ratios and did not fail")

        found = await self.gate.ask(request, check, clients, fresh=True)
        lacking = {client: found[client].lacking for client in sorted(found) if found[client].lacking}
        if lacking:
            self.skipped = (*self.skipped, request.variant)
            reasons = "; ".join(f"{client}: {reason}" for client, reason in lacking.items())
            self.say(
                f"the model with each client's {request.variant} ratios, to compare with, is left out, for these do "
                f"not exist everywhere ({reasons})"
            )

    async def _match(self, variant: str, clients: list[str], looked: Mapping[str, RatiosHeld]) -> None:
        spec = self.settings.ratios.spec(self.seed("ratios"))
        if variant == "own":
            nothing = np.zeros((0, self.num_columns))
            request = MatchRatiosRequest(
                variant=variant,
                own=True,
                points=nothing,
                point_weights=np.zeros(0),
                ratios=spec,
                features=self.features,
                optional=variant != self.scope,
            )
            await self._kept(request, clients)
            return
        wanted = [self.settings.target] if self.settings.target else list(self.cohort.clients)
        givers = [c for c in wanted if c is not None and looked[c].shares and looked[c].num_points > 0]
        sample = ShareSampleRequest(
            num_points=self.settings.num_points, seed=self.seed("sample"), features=self.features
        )
        shared = await self.gate.ask(sample, self._check_sample, clients=givers)
        form = "" if self.features.as_they_are else f", each as {self.num_columns} features"
        self.sharing = {
            c: f"{len(shared[c].points)} unlabelled points{form}" if c in shared else "nothing"
            for c in self.cohort.clients
        }
        points, weights = await asyncio.to_thread(shuffled_pool, shared)
        self.say(
            f"{len(points)} unlabelled points of {len(shared)} clients were pooled{form}, shuffled by a secret order "
            f"and sent to {len(clients)} clients; the coordinator keeps none of them"
        )
        del shared
        request = MatchRatiosRequest(
            variant=variant,
            own=False,
            points=points,
            point_weights=weights,
            ratios=spec,
            features=self.features,
            optional=False,
        )
        await self._kept(request, clients)

    def _check_sample(self, client: str, sample: UnlabelledSample) -> None:
        if sample.points.shape[1] != self.num_columns:
            raise InvalidReplyError(f"{client} gave points of {sample.points.shape[1]} columns, not {self.num_columns}")

    @property
    def _num_classes(self) -> int:
        return len(self.setup.classes)

    def _warn(self) -> None:
        found = self.summaries[self.variant]
        matching, mixes = self.settings.ratios.source == "matching", self.variant == MIXTURE
        for client, summary in found.items():
            if summary.note and not mixes:
                self.say(f"{client}: {summary.note}")
            if summary.uncovered >= MUCH_UNCOVERED and not mixes:
                self.say(
                    f"{client}: {100 * summary.uncovered:.0f} % of the test points lie where it has no training row; "
                    "there its weights say nothing"
                )
            if matching and summary.held_out <= 0 and not mixes:
                self.say(f"{client}: on rows held out its ratios are no better than equal weights: no shift is found")
            if summary.effective_rows < FEW_EFFECTIVE * summary.num_rows:
                self.say(
                    f"{client}: its {summary.num_rows} weighted rows are worth {summary.effective_rows:.1f}; a lower "
                    "method.ratios.clip trades bias for variance"
                )
        if not mixes:
            return
        some = next(iter(found.values()))
        if some.uncovered >= MUCH_UNCOVERED:
            self.say(
                f"{100 * some.uncovered:.0f} % of the test points lie where no client has a training row; there the "
                "weights say nothing"
            )
        if matching and some.held_out <= 0:
            self.say("on rows held out the ratios are no better than equal weights: no shift is found")


_NEEDS = {False: "samples of unlabelled test rows", True: "sums over rows"}
"""By whether ratios are to the mixture."""


def shuffled_pool(shared: Mapping[str, UnlabelledSample]) -> tuple[Floats, Floats]:
    """Put samples together in an order that nobody can tell the clients from.

    Where all gave as many points, weights are all alike; otherwise they tell which points come from clients that gave
    as many, but not from whom.

    Returns:
        Points, shape (N, P), and 1/n of each, n the number of points that its client gave, shape (N,).
    """
    points = np.concatenate([np.asarray(shared[c].points, np.float64) for c in sorted(shared)])
    weights = np.concatenate([np.full(len(shared[c].points), 1.0 / len(shared[c].points)) for c in sorted(shared)])
    # Not from the job's seed, which others know: clients sort the points again, so no result depends on it.
    order = np.random.default_rng(secrets.randbits(128)).permutation(len(points))
    return points[order], weights[order]


def _rounded(prior: Floats) -> Floats:
    """A distribution whose sum is 1 to rounding, for it came as it was sent."""
    share: Floats = np.clip(np.asarray(prior, np.float64), 0.0, None)
    share /= share.sum()
    return share
