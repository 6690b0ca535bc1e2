"""One reweighted job, and what its parts share: variants, who chooses, and how clients count in means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernfed import rng
from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.methods.reweight.eigenvalue_condition import EigenvalueCondition
from kernfed.methods.reweight.messages import (
    APART,
    MIXTURE,
    UNWEIGHTED,
    RatiosHeld,
    RatioSummary,
)
from kernfed.methods.reweight.ratio_spec import RatioFeatures
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed.methods.shares import ALIKE, ROWS
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import json_array, json_of
from kernfed_server.methods.reweight import rules

_WEIGHED = "ratios"
"""Name of what came of the ratios, among what is agreed on."""
_STAND_IN = "stand_in"
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
    conditions: Mapping[str, EigenvalueCondition] = field(default_factory=dict)
    """How eigenvalues of each client's training and test rows compare, where that was asked for."""
    restoring: bool = False
    """Whether ratios that were lost are being found again: with all clients, or not at all."""

    def __post_init__(self) -> None:
        """Begin with the scope asked for, by the rules that the run began with."""
        state = self.run.resumed
        if state is not None:
            self.settings = rules.of_stored(self.settings, state)
            self.mixed = rules.mixture_of(state)
            self.choice = rules.choice_of(state)
            if (before := rules.gone_on_of(state)) is not None:
                self.scope, self.skipped = before.scope, before.skipped
        self.scope = self.scope or self.settings.scope

    def recall(self) -> bool:
        """Go on with the ratios that an earlier life of the run found; False: there are none."""
        kept = self.run.agreed.get(_WEIGHED)
        found = {} if kept is None else json_of(kept)
        if found or self.run.resumed is not None:  # a run of an earlier release keeps the rule of then
            ratios = self.settings.ratios.model_copy(update={_STAND_IN: found.get(_STAND_IN, "all")})
            self.settings = self.settings.model_copy(update={"ratios": ratios})
        if kept is None:
            return False
        self.scope, self.skipped, self.sharing = found["scope"], tuple(found["skipped"]), found["sharing"]
        self.num_columns, self.words = found["num_columns"], found["words"]
        self.mixed = {client: (low, high) for client, (low, high) in found["mixed"].items()}
        self.conditions = {client: EigenvalueCondition(**of) for client, of in found.get("conditions", {}).items()}
        return True

    def agree(self) -> None:
        """Fix what came of the ratios, for later lives of the run."""
        found: dict[str, Any] = {"scope": self.scope, "skipped": self.skipped, "sharing": dict(self.sharing)}
        found |= {"num_columns": self.num_columns, "words": self.words, "mixed": self.mixed}
        found[_STAND_IN] = self.settings.ratios.stand_in
        if self.conditions:
            found["conditions"] = {client: asdict(of) for client, of in self.conditions.items()}
        self.run.agreed.put(_WEIGHED, json_array(found))

    @property
    def variant(self) -> str:
        """Name of the job's own weighted model among the variants: its scope, and of what its ratios are."""
        return MIXTURE if self.settings.ratios.mixes and self.scope == "all" else self.scope

    def kept(self) -> dict[str, Array]:
        """What every checkpoint holds, so that a run goes on by the rules that it began with."""
        return rules.kept(self.mixed, self.choice, rules.GoneOn(self.scope, self.skipped))

    @property
    def gate(self) -> Gate:
        """Asks all clients; one without a valid answer stops the job, or is left out of it."""
        return Gate(self.cohort, self.run, strict=self.setup.strict or self.restoring)

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

    @property
    def shares(self) -> Mapping[str, float]:
        """What each client's rows count before they are weighed, in the mixture of all as in means."""
        rows = self.setup.agreed.num_rows
        return dict.fromkeys(rows, 1.0) if self.settings.client_weights == "equal" else self.cohort.counted(rows)

    def counted(self, variant: str, clients: Iterable[str]) -> Mapping[str, float]:
        """Weights of some of the clients in a mean of a variant's training, none above the share that it may have."""
        weights = self.client_weights(variant)
        return self.cohort.counted({c: float(weights[c]) for c in clients})

    def tell_weights(self) -> None:
        """Say by what clients count in the means of the job's own model."""
        rule = {"rows": ROWS, "effective": "effective rows", "equal": ALIKE}
        by = rule[self.settings.client_weights] + (" times the mean density ratio" if self.variant == MIXTURE else "")
        self.run.weighs(self.client_weights(self.variant), by)

    def client_weights(self, variant: str) -> Mapping[str, float]:
        """Weight of each client in means of a variant's training; unweighted rows are all worth themselves."""
        plain = variant.removesuffix(APART) == UNWEIGHTED
        rule, shares = self.settings.client_weights, self.shares
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

    def still_mixed(self) -> bool:
        """Whether all whose rows make the mixture are in the job."""
        return bool(self.mixed) and set(self.mixed) <= set(self.cohort.clients)

    @property
    def num_classes(self) -> int:
        """Classes of the target."""
        return len(self.setup.agreed.classes)

    def say(self, text: str) -> None:
        """Tell the operator, now and in the report."""
        self.words.append(text)
        self.run.note(text)
