"""Density ratios at every client before round 1: samples, the pool that is sent on, and notes for people."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.errors import InvalidReplyError, JobError
from kernfed.federation.cohort import Cohort
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.messages import (
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
from kernfed.methods.reweight.ratio_spec import RatioFeatures, RatioInput
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed_server.jobs.preparation import Gate, Setup
from kernfed_server.jobs.run import Run

FEW_EFFECTIVE = 0.05
"""Share of its rows below which a client's effective sample size is warned about."""
MUCH_UNCOVERED = 0.1


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

    def __post_init__(self) -> None:
        """Begin with the scope asked for."""
        self.scope = self.scope or self.settings.scope

    @property
    def gate(self) -> Gate:
        """Asks all clients; one without a valid answer stops the job, or is left out of it."""
        return Gate(self.cohort, self.run, strict=self.setup.strict)

    @property
    def variants(self) -> tuple[str, ...]:
        """Variants that are trained, the job's own model first."""
        others = [UNWEIGHTED, *(["own"] if self.scope != "own" else [])] if self.settings.compare else []
        return (self.scope, *(o for o in others if o not in self.skipped))

    @property
    def chooses(self) -> bool:
        """Whether the unweighted model can be the job's; with normalisation that clients keep there is no choice."""
        settings = self.settings
        return settings.deliver == "better" and UNWEIGHTED in self.variants and settings.network.batch_norm != "own"

    def client_weights(self, variant: str) -> Mapping[str, float]:
        """Weight of each client in means of a variant's training; unweighted rows are all worth themselves."""
        rule = self.settings.client_weights
        if rule == "equal":
            return dict.fromkeys(self.setup.num_rows, 1.0)
        if rule == "rows" or variant == UNWEIGHTED:
            return self.setup.num_rows
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
        looked = await self.gate.ask(
            LookUpRatiosRequest(num_points=self.settings.num_points, features=self.features), fresh=True
        )
        self._decide_map(looked)
        self._decide_scope(looked)
        for variant in self.variants:
            if variant != UNWEIGHTED:
                lacking = [c for c in self.cohort.clients if variant not in looked[c].held]
                if lacking:
                    await self._fit(variant, lacking, looked)
        self.summaries = {v: await self.use((v,)) for v in self.variants if v != UNWEIGHTED}
        self._warn()

    async def use(self, variants: tuple[str, ...]) -> dict[str, RatioSummary]:
        """Have clients weigh their rows by variants."""
        return await self.gate.ask(UseRatiosRequest(variants=variants), fresh=True)

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
        if all(self.scope in reply.held for reply in looked.values()):  # found before a restart
            return
        wanted = [settings.target] if settings.target else list(looked)
        refusing = sorted(c for c in wanted if not looked[c].shares)
        if not refusing:
            return
        names = ", ".join(refusing)
        told = f"{names}: the policy lets no unlabelled samples leave (`unlabelled_sample` is not in policy.allow)"
        if settings.on_refusal == "stop" or (settings.on_refusal == "leave-out" and len(refusing) == len(wanted)):
            others = (
                'method.on_refusal = "leave-out" goes on without their test points, ' if not settings.target else ""
            )
            raise JobError(
                f'scope = "{self.scope}" needs samples of unlabelled test rows, and not every client shares them; '
                f"nothing was sent\n  {told}\n"
                f'  use method.scope = "own", with which nothing leaves; {others}'
                'method.on_refusal = "own" goes on with own ratios; or the administrators of these clients allow it'
            )
        if settings.on_refusal == "own":
            self.scope = "own"
            self.say(f'{told}; the job goes on with scope = "own": every client uses its own test points')
        else:
            self.say(f"{told}; the job goes on without their test points; their training rows are weighed all the same")

    async def _fit(self, variant: str, clients: list[str], looked: Mapping[str, RatiosHeld]) -> None:
        settings = self.settings
        if settings.ratios.source == "matching":
            await self._match(variant, clients, looked)
            return
        source = PriorSource(settings.ratios.source)
        request = LabelRatiosRequest(
            variant=variant,
            own=variant == "own",
            test_priors=np.zeros((0, self._num_classes)),
            source=source,
            seed=self.seed("black box"),
            optional=variant != self.scope,
        )
        if variant != "own":
            asked = [settings.target] if settings.target else None
            found = await self.gate.ask(ClassPriorRequest(source=source, seed=self.seed("black box")), clients=asked)
            for client, reply in found.items():
                if reply.fallback:
                    self.say(f"{client}: its test classes are taken to be those of its training rows: {reply.fallback}")
            if source is PriorSource.BLACK_BOX:
                told = ", ".join(f"{c} {found[c].smallest_singular_value:.3g}" for c in sorted(found))
                self.say(f"smallest singular values of the classifiers' confusion matrices: {told}")
            priors = np.array([_rounded(found[c].prior) for c in sorted(found)])
            request = LabelRatiosRequest(
                variant=variant,
                own=False,
                test_priors=priors,
                source=source,
                seed=self.seed("black box"),
                optional=False,
            )
            self.sharing = dict.fromkeys(found, "shares of its classes")
        await self._kept(request, clients)

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
        for client, found in self.summaries[self.scope].items():
            if found.note:
                self.say(f"{client}: {found.note}")
            if found.uncovered >= MUCH_UNCOVERED:
                self.say(
                    f"{client}: {100 * found.uncovered:.0f} % of the test points lie where it has no training row; "
                    "there its weights say nothing"
                )
            if found.effective_rows < FEW_EFFECTIVE * found.num_rows:
                self.say(
                    f"{client}: its {found.num_rows} weighted rows are worth {found.effective_rows:.1f}; a lower "
                    "method.ratios.clip trades bias for variance"
                )


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
