"""The start of every method on streams: agree on ranges, open the streams, draw the kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from kernfed import rng
from kernfed.errors import ConfigError, InvalidReplyError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import (
    DictionaryDrawn,
    DrawDictionaryRequest,
    OpenStreamRequest,
    RangesRequest,
    StreamOpened,
)
from kernfed.methods.online.pooled_messages import PooledStepRequest
from kernfed.methods.online.settings import KernelStreamSettings, OnlineSettings, StreamSettings
from kernfed.methods.online.stream_step import rows_of_round
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import json_array, json_of
from kernfed_server.methods.online.agreed import Opened, former_opening
from kernfed_server.methods.online.agreed_ranges import check_range, largest_norm, target_range

_OPENED, _DRAWN = "streams", "dictionary"
"""Names of what is agreed on here."""


def adapted(job: JobFile) -> JobFile:
    """The job as its clients are prepared for it: every row is of the stream, and no lengthscale is agreed on."""
    if job.data is None:
        return job
    data = job.data.model_copy(update={"test_fraction": 0.0})
    return job.model_copy(update={"data": data, "features": job.features.model_copy(update={"lengthscale": 1.0})})


async def open_streams(setup: Setup, settings: StreamSettings, cohort: Cohort, run: Run) -> Opened:
    """Agree on norm and target range, and let each client open its stream; a resumed run recalls it.

    What leaves a client: its largest row norm, least and largest target, where the job does not give them (`summary`).

    Raises:
        ConfigError: The task is neither regression nor binary.
        JobError: A client cannot open its stream.
    """
    task = setup.schema.task
    if task is LearningTask.CLASSIFICATION:
        raise ConfigError(
            'methods on streams predict numbers or one of two classes; use task = "regression" or "binary"'
        )
    kept, opened = run.agreed.get(_OPENED), None
    if kept is not None:
        opened = Opened.of_json(json_of(kept))
    elif run.resumed is not None:
        opened = former_opening(run.resumed)
    if opened is None:
        opened = await _agree(setup, settings, cohort, run)
    else:
        cohort.recall(_open_request(setup, opened, run.former), lambda client, o: _tell_anew(client, o, run))
    run.agreed.put(_OPENED, json_array(opened.to_json()))
    return opened


async def _agree(setup: Setup, settings: StreamSettings, cohort: Cohort, run: Run) -> Opened:
    """Ask the clients."""
    task = setup.schema.task
    loss = _loss(settings, task)
    gate = Gate(cohort, run, strict=setup.strict)
    low, high = _of_classes(settings, loss) if task is LearningTask.BINARY else (None, None)
    if task is LearningTask.REGRESSION and settings.target_range != "auto":
        low, high = settings.target_range
    norm = None if settings.row_norm == "auto" else settings.row_norm
    if norm is None or low is None or high is None:
        ranges = await gate.ask(RangesRequest(), check=check_range)
        norm = largest_norm(ranges, run) if norm is None else norm
        if low is None or high is None:
            low, high = target_range(ranges, run)
        run.note(f"rows are divided by {norm:.6g}; targets from {low:.6g} to {high:.6g} become 0 to 1")
    if loss is Loss.LOGISTIC and task is LearningTask.REGRESSION:
        raise ConfigError('method.loss = "logistic" is for task = "binary"')
    agreed = Opened(norm or 1.0, low, (high - low) or 1.0, loss, 0, settings.outlier_spans)
    opened = await gate.ask(_open_request(setup, agreed, run.former))
    taken = {client: rows_of_round(settings.batch_rows, o.least_rows) for client, o in opened.items()}
    cautious = {client: rows for client, rows in taken.items() if rows != settings.batch_rows}
    if cautious:
        listed = ", ".join(f"{client} {rows}" for client, rows in sorted(cautious.items())[:12])
        run.note(f"rows per round that a site's policy.min_rows asks for, in place of batch_rows: {listed}")
    agreed = replace(agreed, pooled_frequencies=_pooled_frequencies(settings, opened, run), rows=taken)
    if any(o.live for o in opened.values()):
        return agreed
    longest = max(math.ceil(o.num_stream_rows / taken[client]) for client, o in opened.items())
    return replace(agreed, longest=longest)


def _of_classes(settings: StreamSettings, loss: Loss) -> tuple[float, float]:
    """What becomes 0 and 1 where targets are 0 and 1.

    A model begins at 0. With squares of kernels' predictions that is to lie midway between both classes, for else the
    order of the classes would count; log-odds, and the network, begin midway by themselves.
    """
    return (0.5, 1.5) if loss is Loss.SQUARED and isinstance(settings, KernelStreamSettings) else (0.0, 1.0)


def _pooled_frequencies(settings: StreamSettings, opened: Mapping[str, StreamOpened], run: Run) -> int:
    """Frequencies of ridges on pooled rows; 0 where the job shares gradients.

    Raises:
        ConfigError: Statistics are asked for, and a client's policy refuses them, or the budget does.
    """
    if not isinstance(settings, OnlineSettings) or settings.value_in_effect("share") == "gradients":
        return 0
    refuse = sorted(client for client, o in opened.items() if not o.statistics)
    if refuse:
        listed, kinds = ", ".join(refuse[:12]), " or ".join(f'"{kind}"' for kind in PooledStepRequest.kinds)
        if settings.share == "statistics":
            raise ConfigError(
                f'{listed}: policy.allow lacks {kinds}, which method.share = "statistics" sends; let them '
                'be added there, or set share = "gradients"'
            )
        run.note(f"clients share gradients, as policy.allow lacks {kinds} at {listed}")
        return 0
    try:
        return settings.pooled_frequencies(
            max(rows_of_round(settings.batch_rows, o.least_rows) for o in opened.values())
        )
    except ValueError as err:
        raise ConfigError(f"method: {err}") from err


def _tell_anew(client: str, opened: StreamOpened, run: Run) -> None:
    """Note a client that has nothing left of the job that this one goes on from."""
    if run.former and not opened.continues:
        run.note_once(
            f"{client} has nothing left of job {run.former}: its own models begin anew, and its stream is read from "
            "the beginning; rows that it learned there count twice"
        )


def _open_request(setup: Setup, agreed: Opened, former: str) -> OpenStreamRequest:
    low, span, seed = agreed.target_low, agreed.target_span, setup.schema.seed
    return OpenStreamRequest(
        norm=agreed.norm,
        target_low=low,
        target_span=span,
        loss=agreed.loss,
        seed=seed,
        outlier_spans=agreed.outlier_spans,
        former=former,
    )


async def draw_dictionary(
    setup: Setup,
    settings: KernelStreamSettings,
    cohort: Cohort,
    run: Run,
    lengthscales: tuple[float, ...],
    num_frequencies: int,
    *,
    mixing: Mixing,
    bin_size: int,
    exploration: float = 1.0,
    weight_learning_rate: float = 0.0,
    own_frequencies: int = 0,
    pooled: bool = False,
    gradual: bool = False,
    bounded: bool = False,
) -> Dictionary:
    """Let all clients draw the same frequencies; their fingerprints show it."""
    seed = rng.seed(setup.schema.seed, "online", "dictionary")
    dictionary = Dictionary(lengthscales, num_frequencies, len(setup.agreed.mean), seed)
    own = online.fingerprint(dictionary)

    def check(client: str, drawn: DictionaryDrawn) -> None:
        if drawn.fingerprint != own:
            raise InvalidReplyError(
                f"{client} drew other frequencies than the coordinator; are the releases of kernfed compatible?"
            )

    request = DrawDictionaryRequest(
        dictionary=dictionary,
        mixing=mixing,
        weight_learning_rate=weight_learning_rate,
        bin_size=bin_size,
        exploration=exploration,
        regularisation=settings.regularisation,
        own_frequencies=own_frequencies,
        pooled=pooled,
        gradual=gradual,
        bounded=bounded,
    )
    if run.resumed is not None or run.agreed.get(_DRAWN) is not None:
        cohort.recall(request, check)
    else:
        await Gate(cohort, run, strict=setup.strict).ask(request, check=check)
    run.agreed.put(_DRAWN, json_array(own))
    return dictionary


def fixed_rate(rate: float | str, key: str, settings: StreamSettings, opened: Opened) -> float:
    """A learning rate as set, or 1/sqrt T for the number of rounds T.

    Raises:
        ConfigError: It is to be chosen, and nothing says how many rounds there will be.
    """
    if not isinstance(rate, str):
        return rate
    horizon = settings.rounds or opened.longest
    if horizon < 1:
        raise ConfigError(
            f"method.{key} = auto is 1/sqrt(rounds), but rounds is 0 and a stream has no end; give rounds or {key}"
        )
    return 1.0 / math.sqrt(horizon)


def _loss(settings: StreamSettings, task: LearningTask) -> Loss:
    wanted = settings.loss if isinstance(settings, KernelStreamSettings) else "squared"
    if wanted == "auto":
        return Loss.LOGISTIC if task is LearningTask.BINARY else Loss.SQUARED
    return Loss(wanted)
