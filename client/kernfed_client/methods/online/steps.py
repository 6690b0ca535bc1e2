"""The client's half of online learning: ranges, the stream, rounds, metrics. The weights over kernels stay here."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernfed.errors import JobStateMissingError
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.maths.tasks import TASKS
from kernfed.methods.online.hindsight_messages import Hindsight, HindsightRequest
from kernfed.methods.online.learner import Tally
from kernfed.methods.online.messages import (
    DictionaryDrawn,
    DrawDictionaryRequest,
    LocalStep,
    LocalStepRequest,
    OnlineStep,
    OnlineStepRequest,
    OpenStreamRequest,
    Ranges,
    RangesRequest,
    SharedStep,
    SharedStepRequest,
    StreamMetrics,
    StreamMetricsRequest,
    StreamOpened,
)
from kernfed.methods.online.meta_messages import MetaStep, MetaStepRequest
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed_client.data.guards.told import greatest, smallest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online import hindsight, meta, pooled
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.methods.online.model import keep_personal_model

_KEY = "online client"


def ranges(job: LocalJob, request: RangesRequest) -> Ranges:
    """Largest row norm and range of the targets of the training rows, as means of the outermost ones."""
    del request
    least = job.file.policy.min_rows
    norm = greatest(np.sqrt(np.square(job.x_train).sum(axis=1)), least)
    y = np.asarray(job.targets_train, dtype=np.float64)
    if TASKS[job.task].has_classes:
        return Ranges(num_rows=job.num_rows, norm=norm, target_low=0.0, target_high=1.0)
    return Ranges(num_rows=job.num_rows, norm=norm, target_low=smallest(y, least), target_high=greatest(y, least))


def open_stream(job: LocalJob, request: OpenStreamRequest) -> StreamOpened:
    """Open the stream; what an earlier life of this client learned of it is read back with the dictionary."""
    job.forget(_KEY)
    client = job.memo(_KEY, lambda: OnlineClient(job, request))
    return StreamOpened(
        num_rows=job.num_rows,
        num_stream_rows=client.stream.num_rows,
        live=client.stream.live,
        least_rows=client.least_rows,
        statistics=client.allows_statistics,
        continues=client.continues,
    )


def draw_dictionary(job: LocalJob, request: DrawDictionaryRequest) -> DictionaryDrawn:
    """Draw the kernels; the fingerprint shows that both ends drew the same."""
    return DictionaryDrawn(num_rows=job.num_rows, fingerprint=_client(job).draw_dictionary(request))


def step(job: LocalJob, request: OnlineStepRequest) -> OnlineStep:
    """A round with the client's own weights."""
    return _client(job).step(request)


def pooled_step(job: LocalJob, request: PooledStepRequest) -> PooledStep:
    """A round of ridges on the rows of all clients."""
    return pooled.pooled_step(_client(job), request)


def shared_step(job: LocalJob, request: SharedStepRequest) -> SharedStep:
    """A round with the coordinator's weights."""
    return _client(job).shared_step(request)


def local_step(job: LocalJob, request: LocalStepRequest) -> LocalStep:
    """A round in which this client moves all parameters by itself."""
    return _client(job).local_step(request)


def meta_step(job: LocalJob, request: MetaStepRequest) -> MetaStep:
    """A round of a network that each client adapts."""
    return meta.meta_step(_client(job), request)


def metrics(job: LocalJob, request: StreamMetricsRequest) -> StreamMetrics:
    """Sums over the predictions so far; the personal model is kept as it is now."""
    del request
    keep_personal_model(job, _client(job))
    return measure_stream(job)


def in_hindsight(job: LocalJob, request: HindsightRequest) -> Hindsight:
    """What one function would have cost on all rows that were learned."""
    return hindsight.hindsight(job, _client(job), request)


def measure_stream(job: LocalJob) -> StreamMetrics:
    """Sums over the predictions so far."""
    client = _client(job)
    state = client.state
    learner, tally = state.learner, state.learner.tally
    weights = learner.weights()
    bound = learner.regret_bound(client.rules)
    positive = weights[weights > 0.0]
    return StreamMetrics(
        sums=_sums("personal", tally),
        alone=() if learner.own is None else (_sums("local", learner.alone),),
        total_loss=tally.total_loss,
        best_kernel_loss=float(learner.kernel_losses.min()),
        regret_bound=-1.0 if bound is None else bound,
        effective_kernels=float(np.exp(-(positive * np.log(positive)).sum())),
    )


def _sums(model: str, tally: Tally) -> MetricSums:
    return MetricSums(
        model=model,
        num_rows=tally.num_rows,
        squared_error=tally.squared_error,
        target_mean=tally.target_mean,
        target_sum_squares=tally.target_sum_squares,
        num_correct=tally.num_correct,
        log_loss=tally.log_loss,
        auc=0.0,
        auc_pairs=0.0,
    )


def _client(job: LocalJob) -> OnlineClient:
    def missing() -> OnlineClient:
        raise JobStateMissingError("this client opened no stream for the job; prepare it again")

    return job.memo(_KEY, missing)


STEPS: dict[type[Any], Any] = {
    RangesRequest: ranges,
    OpenStreamRequest: open_stream,
    DrawDictionaryRequest: draw_dictionary,
    OnlineStepRequest: step,
    PooledStepRequest: pooled_step,
    SharedStepRequest: shared_step,
    LocalStepRequest: local_step,
    MetaStepRequest: meta_step,
    StreamMetricsRequest: metrics,
    HindsightRequest: in_hindsight,
}
"""Steps of this module, by the request that they answer."""
