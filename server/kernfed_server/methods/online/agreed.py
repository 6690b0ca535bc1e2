"""Agreement of a job on streams before round 1, beside that of every job on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernfed.arrays import Floats
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.parameters import OnlineParameters
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.jobs.start.preparation import Setup, agree_features
from kernfed_server.jobs.state import State

_MEAN, _DEVIATION, _FACTS = "agreed.mean", "agreed.deviation", "agreed.facts"
"""Places in the checkpoints of the release before that which has one place for what all jobs agree on."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Agreement of coordinator and clients, beside the scales of the columns."""

    norm: float
    target_low: float
    target_span: float
    loss: Loss
    longest: int
    """Rounds until the longest stream ends; 0: some stream has no end."""
    outlier_spans: float
    """See `OpenStreamRequest`."""
    pooled_frequencies: int = 0
    """Of ridges on pooled rows; 0: the job shares gradients."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of a round, by the client, as its policy and the job ask for; none in jobs of earlier releases."""

    def to_json(self) -> dict[str, Any]:
        """JSON values, which make it again."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Opened:
        """What `to_json` gave."""
        return cls(**{**values, "loss": Loss(values["loss"])})


def parameters(
    setup: Setup,
    opened: Opened,
    dictionary: Dictionary,
    theta: Floats,
    round_num: int,
    offset: Floats | None = None,
) -> OnlineParameters:
    """What a job leaves after a round: the arguments as `OnlineParameters` has them, with all that was agreed on."""
    return OnlineParameters(
        feature_names=setup.schema.features,
        target=setup.schema.target,
        classes=setup.agreed.classes,
        mean=setup.agreed.mean,
        scale=setup.agreed.deviation * opened.norm,
        target_low=opened.target_low,
        target_span=opened.target_span,
        loss=opened.loss,
        dictionary=dictionary,
        theta=theta,
        round_num=round_num,
        offset=offset,
        columns=setup.schema.columns,
    )


def former_agreement(job: JobFile, run: Run) -> Agreement | None:
    """The scales of the columns from a checkpoint of an earlier release; None: there are none."""
    state = run.resumed
    if state is None or _FACTS not in state:
        return None
    facts = state.json(_FACTS)
    return Agreement(
        classes=tuple(facts["classes"]),
        mean=state[_MEAN],
        deviation=state[_DEVIATION],
        spec=agree_features(job, {}, {}, run),
        backbone=facts["backbone"],
        num_rows=facts["num_rows"],
    )


def former_opening(state: State) -> Opened | None:
    """The agreement for the streams, as `former_agreement`."""
    if _FACTS not in state:
        return None
    facts = state.json(_FACTS)
    spans = facts.get("outlier_spans", 0.0)  # of a job that began when no row was left out
    norm, low, span = facts["norm"], facts["target_low"], facts["target_span"]
    frequencies = facts.get("pooled_frequencies", 0)  # of a job that began when there were gradients alone
    return Opened(norm, low, span, Loss(facts["loss"]), facts["longest"], spans, frequencies)
