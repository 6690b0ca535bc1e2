"""What a room hands over for each of its methods: the coordinator's half."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.federation.ledger import SPREAD
from kernfed.jobs.job_file import JobFile
from kernfed.methods.shared_settings import AveragedSettings, ridge_of
from kernfed.methods.shares import ALIKE, ROWS
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.assembly import feature_model, job_facts
from kernfed_server.jobs.evaluation import measure_local
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.agreement import Agreement, Earlier
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.start.rules import RidgeChoice
from kernfed_server.jobs.state import State
from kernfed_server.jobs.verdict import ALONE, Against


async def local_ridge(setup: Setup, settings: Any, cohort: Cohort, run: Run) -> RoundMetrics:
    """Metrics of every client's own ridge model, by the ridge of the method's settings."""
    return await measure_local(setup, cohort, run, ridge_of(settings))


def linear_model(job: JobFile, setup: Setup, weights: Array) -> GlobalModel:
    """The model of weights on centred features, shape (M, C)."""
    return feature_model(setup, weights, {"name": job.name} | job_facts(setup, job.method))


def spread_by_ridge(settings: Any) -> float:
    """`SPREAD`, or more for a small ridge.

    (H_j + ridge I)⁻¹ G is up to |G|/ridge at a client with few rows, and near |G| at one with many.
    """
    ridge = getattr(settings, "ridge", None)
    return max(SPREAD, 1e3 / ridge) if isinstance(ridge, float) and ridge > 0 else SPREAD


def by_rows(setup: Setup, settings: Any) -> tuple[Mapping[str, float], str]:
    """Clients count by their training rows, unless the settings have a rule by which they count alike."""
    if isinstance(settings, AveragedSettings) and settings.rule.alike:
        return alike(setup, settings)
    return setup.agreed.num_rows, ROWS


def alike(setup: Setup, _settings: Any) -> tuple[Mapping[str, float], str]:
    """Each client counts the same."""
    return dict.fromkeys(setup.agreed.num_rows, 1.0), ALIKE


def as_they_are(job: JobFile, _resumed: State | None) -> JobFile:
    """The job of a method that takes all rows as they are, for `Workflow.adapt`: no row is bounded by a scale."""
    if job.data is None:
        return job
    return job.model_copy(update={"data": job.data.model_copy(update={"scales": "moments"})})


@dataclass(frozen=True, slots=True)
class Workflow:
    """A method at the coordinator; `kernfed.methods.base.Method` says what a job of it needs."""

    run: Callable[[Any, Any, Cohort, Run], Awaitable[Array | Model | None]]
    """(setup, settings, cohort, run) -> weights, which `model` makes a model of, or a model, or None: there is no
    global model. `setup` is None where the method needs nothing."""
    baseline: Callable[[Setup, Any, Cohort, Run], Awaitable[RoundMetrics]] | None = None
    """(setup, settings, cohort, run) -> metrics before round 1 of each client's model alone, which later rounds carry
    on; None: the workflow measures them itself, or nobody does."""
    model: Callable[[JobFile, Setup, Array], GlobalModel] = linear_model
    """(job, setup, weights) -> the model. Blocks."""
    compared: Sequence[Against] = ALONE
    """Which of the models that are measured a job's end sets side by side."""
    adapt: Callable[[JobFile, State | None], JobFile] = lambda job, _resumed: job
    """(job, state from which its run goes on, if any) -> the job as its clients are prepared for it."""
    earlier: Callable[[JobFile, Mapping[str, bytes]], Earlier | None] = lambda _job, _files: None
    """(job, content of the files that it names) -> what another job agreed on, which its clients take over; None:
    they agree among themselves."""
    spread: Callable[[Any], float] = spread_by_ridge
    """(settings) -> how many times the largest number of all other clients one client's may be before it is left out
    of a step; see `kernfed.federation.ledger`. More where honest clients may differ by more."""
    feature_copies: Callable[[Any], int] = lambda _settings: 0
    """(settings) -> matrices of all training rows' features that a client keeps at once; 0: it sums over blocks of
    rows, and keeps what ridge problems need. A client that has no room for them refuses before round 1."""
    weights: Callable[[Setup, Any], tuple[Mapping[str, float], str] | None] = by_rows
    """(setup, settings) -> by what clients count in the method's means: each one's weight, and what that is in words;
    both empty where it forms none. None: its workflow says so itself, by `Run.weighs`."""
    former: Callable[[JobFile, Run], Agreement | None] = lambda _job, _run: None
    """(job as its clients are prepared for it, its run, which goes on) -> what its clients agreed on, where an earlier
    release kept that in a place of the method's own; None: it kept nothing, and they agree anew."""
    alone: bool = False
    """Whether each client's model is of its own rows, with a lengthscale of its own: none is chosen for all."""
    search: Callable[[Any], RidgeChoice | None] = lambda _settings: None
    """(settings) -> how their ridge is chosen by rows kept apart, where they leave that open; None: it cannot be."""
