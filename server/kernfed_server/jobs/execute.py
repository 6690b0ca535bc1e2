"""A job from its file to its model, the same over the network and in one process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import structlog

from kernfed import plugins
from kernfed.errors import ConfigError, DataError, DivergedError, KernfedError, NumericalError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.former import Former, former_of
from kernfed.jobs.job_file import JobFile, named_files
from kernfed.jobs.plugins_used import PluginsFinding, used_by
from kernfed.methods.base import Begins, Needs
from kernfed.methods.finding import BegunFinding
from kernfed.methods.registry import method_of
from kernfed.methods.shared_settings import MAX_SHARE
from kernfed.secure_sums.terms import who_can_learn
from kernfed.wording import listed
from kernfed_server.federation.secure_sum import fewest_are_here
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.evaluation import evaluate, measured_once
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.scores.asking import appraise
from kernfed_server.jobs.start.agreement import Earlier
from kernfed_server.jobs.start.columns import agree_columns
from kernfed_server.jobs.start.preparation import Setup, prepare, setup_of
from kernfed_server.jobs.start.rules import as_begun, resolve
from kernfed_server.jobs.start.taking import recall
from kernfed_server.jobs.state import State
from kernfed_server.jobs.verdict import diverged, end_of, far_off, worse_than_mean
from kernfed_server.methods.base import Workflow
from kernfed_server.methods.registry import WORKFLOWS

log = structlog.get_logger(__name__)

_STEP_KEYS = ("learning_rate", "step_size", "local_steps")
"""Keys of any method that make it move further in a round."""


async def execute(
    job: JobFile, cohort: Cohort, run: Run, *, read_file: Callable[[str], bytes] | None = None
) -> Model | None:
    """Prepare the clients, run the method, and put the model together.

    A run that resumes passes the same way: what the clients agreed on is recalled, and the method goes on after the
    last closed round.

    Args:
        job: What to run.
        cohort: On whom.
        run: Where rounds are recorded.
        read_file: Content of a file that the job names, by its SHA-256; may block.

    Returns:
        The model, or what else the method leaves as artifacts; None where there is nothing of the kind.

    Raises:
        JobError: A client's data or policy do not allow the job, or the quorum was missed for too long.
        DivergedRunError: The method moves away from its solution; carries the last good model.
        NumericalError: The model is of no use, and one client's numbers were far beyond all others'; names it.
        KernfedError: The job cannot do what it asks for; the message tells what to do.
    """
    if job.privacy.secure:
        fewest_are_here(cohort)
        run.holds_state = True  # whose terms a sum is of is written before it is unmasked
        if run.resumed is None:
            run.note_once(who_can_learn(len(cohort.clients)))
    workflow = await asyncio.to_thread(WORKFLOWS.__getitem__, job.method.name)  # may load the method's room
    cohort.let_differ(workflow.spread(job.method))
    cohort.cap(job.cohort.max_share, acts=MAX_SHARE not in job.unused_keys())
    if "cohort.min_rows_fraction" not in job.unused_keys():
        cohort.count_rows(job.cohort.min_rows_fraction)
    needs = method_of(job.method).needs(job.method)
    if used := used_by(job, workflow.run.__module__):
        run.publish(PluginsFinding(used))
    if needs is Needs.NOTHING:
        with _of_plugin(job, workflow):
            await workflow.run(None, job.method, cohort, run)
        _tell_end(run, None, workflow)
        return None
    files = await asyncio.to_thread(_read_files, job, read_file) if named_files(job) else {}
    former = former_of(job, files)
    # A model to begin with is judged before the method runs, what else a method left by the method alone.
    with _of_former(former if method_of(job.method).begins is Begins.STATE else None, run):
        return await _carry_out(job, files, former, cohort, run)


@contextlib.contextmanager
def _of_former(former: Former | None, run: Run) -> Iterator[None]:
    """Where a run fails as it reads what another job left, that was damaged, or made up."""
    fresh = run.resumed is None
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
        if former is None or not fresh or run.round_num not in (0, former.round_num):
            raise
        log.warning("a job cannot begin from what another one left", former=former.job_id, exc_info=err)
        raise DataError(
            f"start_from: what {former.origin} left cannot be gone on from ({type(err).__name__}); fetch the job's "
            "artifacts again with `kernfed job fetch`, or begin anew"
        ) from err


async def _carry_out(
    job: JobFile, files: Mapping[str, bytes], former: Former | None, cohort: Cohort, run: Run
) -> Model | None:
    workflow = WORKFLOWS[job.method.name]
    earlier = await asyncio.to_thread(workflow.earlier, job, files)
    with _of_former(former, run):
        if former is not None and method_of(job.method).begins is Begins.STATE:
            run.go_on_from(former)
        elif former is not None:
            run.begin_with(former)
            earlier = await asyncio.to_thread(Earlier.of_former, former, job)
        job = await agree_columns(as_begun(job, run), earlier, cohort, run)
        setup = await _prepared(job, workflow, earlier, cohort, run)
    search = None if job.privacy.secure else workflow.search(job.method)  # which tells sums of single clients
    job, setup = await resolve(job, setup, cohort, run, search)
    cohort.let_differ(workflow.spread(job.method))
    weights = workflow.weights(setup, job.method)
    if weights is not None:
        run.weighs(*weights)
    if workflow.baseline is not None:
        measure = functools.partial(workflow.baseline, setup, job.method, cohort, run)
        setup = dataclasses.replace(setup, baseline=await measured_once(run, "local models", measure))
    if files:
        setup = dataclasses.replace(setup, files=files)
    _leave_linear(job, setup, workflow, cohort, run)
    try:
        with _of_plugin(job, workflow):
            left = await workflow.run(setup, job.method, cohort, run)
        _refuse_far_off(job, cohort, run)
    except NumericalError as err:
        run.tell_odd()
        of_run = cohort.loudest is None and isinstance(err, DivergedError)
        if of_run and "method." not in str(err) and (keys := _step_keys(job)):
            err.args = (f"{err}; lower {' or '.join(keys)}",)
        if (named := cohort.loudest or cohort.largest) is not None:
            err.args = (f"{err}. {named.words}",)
        if not isinstance(err, DivergedError):
            raise
        if run.former:
            err.args = (f"{err}. {_began(run)}",)
        good = await _last_good(err, run)
        if good is None:
            raise
        if good.weights is not None:
            good.model = await asyncio.to_thread(workflow.model, job, setup, good.weights)
        await _measure_what_is_left(good, run)
        run.ends(Arrival("the run diverged, and the job leaves the last good model", False))
        await _appraise(job, cohort, run, workflow)
        _tell_end(run, setup.schema.task, workflow)
        if words := worse_than_mean(run.measured):
            run.note(words)
        raise good from err
    run.tell_odd()
    await _appraise(job, cohort, run, workflow)
    _tell_end(run, setup.schema.task, workflow)
    if words := worse_than_mean(run.measured):
        remedy = f"lower {' or '.join(keys)}" if (keys := _step_keys(job)) else "it is of no use as it is"
        run.note(f"{words}; {remedy}")
        if cohort.largest is not None:
            run.note_first(f"loud {cohort.largest.client}", cohort.largest.words)
    if far_off(run.measured):
        if run.former:
            run.note(f"the model is far off. {_began(run)}")
        if cohort.loudest is not None and cohort.loudest.of_model:
            raise NumericalError(f"the model predicts far worse than the mean of the targets. {cohort.loudest.words}")
    if isinstance(left, np.ndarray):
        return await asyncio.to_thread(workflow.model, job, setup, left)
    return left


def _of_plugin(job: JobFile, workflow: Workflow) -> contextlib.AbstractContextManager[None]:
    """While the method's loop runs: what it raises is told as of its package, where that is one from outside."""
    return plugins.blamed(plugins.owner(workflow.run.__module__), f"method {job.method.name}", tell=True)


def _began(run: Run) -> str:
    return (
        f"The job began with what job {run.former} left, which may be damaged: fetch its artifacts again with `kernfed "
        "job fetch`, or begin anew"
    )


async def _prepared(job: JobFile, workflow: Workflow, earlier: Earlier | None, cohort: Cohort, run: Run) -> Setup:
    """What the clients agreed on before round 1, once in the life of the job."""
    adapted, state = workflow.adapt(job, run.resumed), run.resumed
    if state is not None and adapted != (now := workflow.adapt(job, None)):
        run.publish(BegunFinding.of("data", now.plan()["data"], adapted.plan()["data"]))
    mapped = method_of(job.method).needs(job.method) is Needs.FEATURES
    copies = workflow.feature_copies(job.method)
    agreement = run.agreed.agreement
    if agreement is None and state is not None:
        agreement = workflow.former(adapted, run)
    if agreement is None:
        searched = None if workflow.alone else workflow.search(job.method) is not None
        agreement = await prepare(
            adapted, cohort, run, map_features=mapped, feature_copies=copies, earlier=earlier, searched=searched
        )
        if state is not None:
            run.note(
                "an earlier release began the job, and its checkpoints do not hold what the clients agreed on: scales, "
                f"classes and features are agreed on anew, by {listed(sorted(agreement.num_rows), more=', ...')}; the "
                "rounds so far were of what those agreed on who took part then"
            )
        run.agreed.agree(agreement)
    else:
        await recall(adapted, agreement, cohort, run, copies=copies, earlier=earlier)
        if run.agreed.agreement is None:
            run.agreed.agree(agreement)
    await run.write_agreed()
    return setup_of(adapted, agreement, run, earlier)


def _refuse_far_off(job: JobFile, cohort: Cohort, run: Run) -> None:
    """Call a run diverged whose steps led far off, though they stayed within the range of numbers.

    Where one client's model is the reason, the job ends by its name.

    Raises:
        DivergedError: The model is of no use at any client.
    """
    of_one = cohort.loudest is not None and cohort.loudest.of_model
    if diverged(run.measured) and not of_one and _step_keys(job):
        raise DivergedError(worse_than_mean(run.measured))


async def _appraise(job: JobFile, cohort: Cohort, run: Run, workflow: Workflow) -> None:
    """Say what the scores on test rows are worth; a stream's are sums over rows that are gone."""
    if not method_of(job.method).reads_stream:
        await appraise(cohort, run, workflow.compared)


def _tell_end(run: Run, task: LearningTask | None, workflow: Workflow) -> None:
    end = end_of(run.measured, run.arrival, task, workflow.compared)
    if end is not None:
        run.publish(end)
        run.note(f"end: {end.words}")


def _leave_linear(job: JobFile, setup: Setup, workflow: Workflow, cohort: Cohort, run: Run) -> None:
    """Say how a round that `evaluate` measured is left, where the method has no way of its own."""

    def centred(of: State) -> Setup:
        return setup.centred_by(of["feature_mean"], of["target_mean"])

    async def leave(of: State) -> Model:
        return await asyncio.to_thread(workflow.model, job, centred(of), of["weights"])

    run.sound.leave_by(leave, lambda of: evaluate(centred(of), cohort, run, of["weights"]))


async def _last_good(err: DivergedError, run: Run) -> DivergedRunError | None:
    """The error with what the job leaves; None where there is nothing."""
    if isinstance(err, DivergedRunError):
        return err
    round_num = run.sound.round_num
    if round_num is None:
        run.note("the run diverged, and no round before was measured that is not far off: there is no model to leave")
        return None
    run.note(f"the job leaves what round {round_num} came to: of the rounds that were measured it has the least error")
    left = await run.sound.left()
    given = {"weights": left} if isinstance(left, np.ndarray) else {"model": left}
    return DivergedRunError(str(err), **given, measure=run.sound.measure)


async def _measure_what_is_left(err: DivergedRunError, run: Run) -> None:
    """Let the metrics shown last be those of what a diverged run leaves."""
    try:
        metrics = await err.measure()
    except KernfedError as failed:
        run.note(f"what the job leaves was not measured, and the last metrics are of the diverged model: {failed}")
        return
    run.went_back(metrics)
    run.note("the metrics shown last are of what the job leaves, from before it diverged")


def _step_keys(job: JobFile) -> list[str]:
    """Keys of the job by which its method moves, as they are written."""
    idle = job.method.idle_keys()
    return [f"method.{key}" for key in _STEP_KEYS if hasattr(job.method, key) and key not in idle]


def _read_files(job: JobFile, read_file: Callable[[str], bytes] | None) -> dict[str, bytes]:
    found = {}
    for name in named_files(job):
        digest = job.files.get(name)
        if read_file is None or digest is None:
            raise ConfigError(f"{name!r}: the file's content is not at hand; submit with `kernfed job submit`")
        found[name] = read_file(digest)
    return found
