"""What a job will send from here, told before anything leaves: its steps, what each answer holds, and who learns it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernfed.features.spec import num_features
from kernfed.federation.messages import sums
from kernfed.federation.messages.base import FieldInfo, Kind, Request, fields_of, requests_in
from kernfed.federation.messages.choosing import TrainingFoldSumsRequest
from kernfed.federation.messages.data import FindColumnsRequest, LearningTask
from kernfed.federation.messages.sums import MaskedRequest
from kernfed.jobs.client_file import DEFAULT_KINDS, PolicySection
from kernfed.jobs.held_to import asked_of, chooses_by_folds, shows_one_client
from kernfed.jobs.job_file import JobFile
from kernfed.methods.base import Needs
from kernfed.methods.registry import SHARED_REQUESTS, method_of
from kernfed.secure_sums.terms import who_can_learn
from kernfed.wording import clean, listed
from kernfed_client.approval.plan_digest import digest_of
from kernfed_client.daemon.policy import sent_in_the_clear

TELLS = {
    Kind.SUMMARY: "row and class counts, class names, means and deviations of columns, distances between rows",
    Kind.MEAN_EMBEDDING: "the mean of the features, and of the targets",
    Kind.SUFFICIENT_STATISTIC: "second moments of features and targets, sums over rows",
    Kind.GRADIENT: "gradients, moments and Hessian products over rows",
    Kind.NEWTON_STEP: "local Hessian solves",
    Kind.PREDICTION: "predictions on data that all clients share",
    Kind.MODEL_UPDATE: "weights of a model that the rows here trained",
    Kind.COLLABORATION_WEIGHTS: "the share that this client takes from each other client",
    Kind.METRIC: "sums of errors over test rows",
    Kind.UNLABELLED_SAMPLE: "rows without their labels, which other clients get",
    Kind.STORED_STATISTIC: "statistics that stay with the job's artifacts, for clients that join later",
}
"""What a coordinator learns by a kind of information."""

_SUMMED = "of all clients together, and of none alone: "
_MOST_STEPS = 40
"""In the table for people."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step that the job may ask."""

    step: str
    surely: bool
    """Whether every such job asks it."""
    kinds: list[str]
    holds: list[str]
    """Arrays of an answer, with their shapes in symbols or numbers."""
    bytes: int | None
    """Of the numbers in an answer; None: it is not known beforehand."""
    brings: list[str]
    """Arrays that come to this client with it, which follow from what other clients sent, or from the job."""
    refused: list[str]
    """Kinds among them that the policy here refuses."""
    clear: list[str]
    """Kinds among them that leave in the clear, where the policy lets them leave in secure sums alone."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job would do here."""

    job: str
    plan: str
    """Digest of what decides what leaves, the operator included; empty where that is not known."""
    operator: str
    """Empty: not known, as the job was not submitted yet."""
    method: str
    rounds: int | None
    """None: nobody can say."""
    cohort: list[str] | None
    """None: every client that offers the data set."""
    min_clients: int
    dataset: str
    target: str
    columns: list[str]
    """Of the table, that the job learns from."""
    sizes: dict[str, int]
    """Symbols of shapes that are known: M features, C outputs."""
    steps: list[PlannedStep]
    coordinator_learns: dict[str, str]
    """By kind of information that may leave."""
    others_learn: str
    secure_sums: str
    """Who could learn this client's terms of secure sums; empty: there are none."""


_OF_SECURE_SUMS = requests_in(sums)


def plan_of(job: JobFile, policy: PolicySection, operator: str = "") -> JobPlan:
    """Tell what a job will send.

    Args:
        job: The job file.
        policy: Of the client file.
        operator: Whose job it is; empty: not known.
    """
    method, sizes = method_of(job.method), _sizes(job)
    surely = set(asked_of(job))
    asked = [request for request in (*SHARED_REQUESTS, *(method.steps or ())) if _may_ask(job, request)]
    steps = [_step(job, request, policy, sizes, surely=request in surely) for request in asked]
    kinds = sorted({Kind(kind) for step in steps for kind in step.kinds}, key=list(Kind).index)
    alone = {kind for request in asked if not issubclass(request, MaskedRequest) for kind in request.kinds}
    return JobPlan(
        job=job.name,
        plan=digest_of(job, operator) if operator else "",
        operator=operator,
        method=job.method.name,
        rounds=method.rounds(job.method) or None,
        cohort=job.cohort.clients,
        min_clients=job.cohort.min_clients,
        dataset=job.cohort.dataset,
        target="" if job.data is None else job.data.target,
        columns=[] if job.data is None else list(job.data.features),
        sizes=sizes,
        steps=steps,
        coordinator_learns={kind.value: TELLS[kind] if kind in alone else _SUMMED + TELLS[kind] for kind in kinds},
        others_learn=_others(steps),
        secure_sums=_of_sums(job),
    )


def _may_ask(job: JobFile, request: type[Request[Any]]) -> bool:
    needs = method_of(job.method).needs(job.method)
    if needs is Needs.NOTHING and request in SHARED_REQUESTS:
        return False
    if request is TrainingFoldSumsRequest:
        return chooses_by_folds(job)
    if request is FindColumnsRequest:
        return job.data is not None and bool(job.data.plans)
    masked = method_of(job.method).masked(job.method)
    if job.privacy.secure:
        return not shows_one_client(request)
    return request not in masked and request not in _OF_SECURE_SUMS


def _of_sums(job: JobFile) -> str:
    if not job.privacy.secure:
        return ""
    return who_can_learn(None if job.cohort.clients is None else len(job.cohort.clients))


def _sizes(job: JobFile) -> dict[str, int]:
    data = job.data
    if data is None:
        return {}
    found: dict[str, int] = {}
    if data.task is LearningTask.CLASSIFICATION:
        found |= {"C": len(data.classes)} if data.classes else {}
    else:
        found["C"] = 1
    needs = method_of(job.method).needs(job.method)
    if needs is Needs.FEATURES and not data.plans and data.backbone is None:
        section = job.features
        found["M"] = num_features(section.kernel, section.form, len(data.features), section.num_frequencies)
    return found


def _step(
    job: JobFile, request: type[Request[Any]], policy: PolicySection, sizes: dict[str, int], *, surely: bool
) -> PlannedStep:
    arrays = list(_arrays(request.reply))
    counts = [_count(field, sizes) for field in arrays]
    widths = [8 if field.exact or field.whole else job.float_bits // 8 for field in arrays]
    size = sum(num * width for num, width in zip(counts, widths, strict=True) if num is not None)
    size += sum(8 for field in fields_of(request.reply) if field.type in (int, float))
    return PlannedStep(
        step=request.step,
        surely=surely,
        kinds=[kind.value for kind in request.kinds],
        holds=[_shown(field, sizes) for field in arrays],
        bytes=None if None in counts or _lists(request.reply) else size,
        brings=[_shown(field, sizes) for field in _arrays(request)],
        refused=[k.value for k in request.kinds if k not in policy.allow and (surely or k in DEFAULT_KINDS)],
        clear=[kind.value for kind in sent_in_the_clear(request, policy)],
    )


def _arrays(message: type) -> Iterable[FieldInfo]:
    return (field for field in fields_of(message) if field.type is np.ndarray)


def _lists(message: type) -> bool:
    """Whether a message holds parts or lists, whose number nobody knows beforehand."""
    return any(field.nested or field.type is tuple for field in fields_of(message))


def _count(field: FieldInfo, sizes: dict[str, int]) -> int | None:
    if field.shape is None:
        return None
    dims = [dim if isinstance(dim, int) else sizes.get(dim) for dim in field.shape.dims]
    return None if None in dims else math.prod(dim for dim in dims if dim is not None)


def _shown(field: FieldInfo, sizes: dict[str, int]) -> str:
    dims = () if field.shape is None else field.shape.dims
    return f"{field.name} ({' x '.join(str(sizes.get(d, d) if isinstance(d, str) else d) for d in dims) or 'numbers'})"


def _others(steps: list[PlannedStep]) -> str:
    brought = sorted({name.partition(" ")[0] for step in steps for name in step.brings})
    if not brought:
        return "nothing but that this client takes part"
    return (
        "what the coordinator makes of all clients' answers and sends with the next steps, namely "
        f"{listed(brought, 12, more=', and {left} more')}; and what the coordinator publishes of the result"
    )


def as_json(plan: JobPlan) -> dict[str, object]:
    """The plan as JSON types."""
    return asdict(plan)


def as_table(plan: JobPlan) -> RenderableType:
    """The plan for people."""
    head = Table.grid(padding=(0, 2))
    cohort = "every client that offers the data set" if plan.cohort is None else listed(plan.cohort)
    rounds = "nobody can say" if plan.rounds is None else f"at most {plan.rounds:,}"
    sizes = ", ".join(f"{symbol} = {size:,}" for symbol, size in sorted(plan.sizes.items()))
    for name, told in (
        ("operator", plan.operator),
        ("method", plan.method),
        ("rounds", rounds),
        ("cohort", f"{cohort}; at least {plan.min_clients:,}"),
        ("data set", plan.dataset),
        ("target", plan.target),
        ("columns", f"{len(plan.columns):,}: {listed(plan.columns, 12, more=', and {left} more')}"),
        ("sizes", sizes),
        ("plan", plan.plan),
    ):
        if told:
            head.add_row(Text(name), Text(clean(told)))
    table = Table("step", "kinds", "an answer holds", title="what may leave this site")
    table.add_column("bytes", justify="right")
    table.add_column("policy")
    telling = [step for step in plan.steps if step.kinds]
    for step in telling[:_MOST_STEPS]:
        verdict = f"refuses {', '.join([*step.refused, *(f'{kind} in the clear' for kind in step.clear)])}"
        if not (step.refused or step.clear):
            verdict = "allows"
        size = "" if step.bytes is None else f"{step.bytes:,}"
        name = step.step if step.surely else f"{step.step} (where asked)"
        table.add_row(*map(Text, (name, ", ".join(step.kinds), ", ".join(step.holds) or "numbers", size, verdict)))
    learns = [Text("the coordinator learns:", style="bold")]
    learns += [Text(f"  {kind}: {told}") for kind, told in plan.coordinator_learns.items()]
    more = len(telling) - _MOST_STEPS
    rest = [Text(f"{more} more steps are not shown; --json has them all")] if more > 0 else []
    rest_of = [Text(plan.secure_sums)] if plan.secure_sums else []
    return Group(head, table, *rest, *learns, *rest_of, Text(f"other clients learn {plan.others_learn}"))
