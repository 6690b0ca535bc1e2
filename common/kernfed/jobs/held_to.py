"""What a job file fixes of its method's requests, so that a client can hold a coordinator to a signed file.

Held to the file are the data set and its schema, the scales and the feature map as far as the file gives them, the
network, the job whose state is gone on from, and the numbers and texts that the method names in `Method.fixed`. What
follows from the clients' rows, or from rules such as `auto`, is not; of that a client judges by its own rows
(`kernfed_client.data.guards.own_rows`). A signed job may go on under a later release: who changes what a schema or a
map is by the file lets the former one pass here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.columns.agree import open_plans
from kernfed.columns.plan import as_asked, feature_names
from kernfed.features.kernels import EXACT_KERNELS
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Kind, Request
from kernfed.federation.messages.choosing import TrainingFoldSumsRequest
from kernfed.federation.messages.data import (
    DataSchema,
    DescribeDataRequest,
    FindColumnsRequest,
    MapFeaturesRequest,
    StandardiseRequest,
)
from kernfed.federation.messages.sums import MaskedRequest, seen_in_the_clear
from kernfed.jobs.job_file import JobFile, data_schema, lengthscale, named_files
from kernfed.maths.clipping import BOUND
from kernfed.methods.base import Needs
from kernfed.methods.registry import SHARED_REQUESTS, method_of
from kernfed.methods.shared_settings import AUTO
from kernfed.models.network_spec import NetworkSpec

_SPLIT = ("copies_together", "by_content")
"""Of a schema, where `data.split` says which rows are held out."""


def contradiction(job: JobFile, request: Request[Any], round_num: int = 0, *, former: bool = False) -> str:
    """What a request asks otherwise than the job file says, for people; empty: nothing.

    Args:
        job: The file.
        request: For it.
        round_num: In which it is asked.
        former: Whether the job may have begun under a release that held rows out otherwise, where its file does not say
            how.
    """
    rounds = method_of(job.method).rounds(job.method)
    if job.privacy.secure and shows_one_client(type(request)):
        return f"{request.step} is asked in the clear, and the job file says that sums are secure"
    request = request.bare
    if rounds and round_num > rounds:
        return f"{request.step} is asked in round {round_num}, and the job file says {rounds} rounds"
    for what, asked, signed in _pairs(job, request, former=former or bool(job.start_from)):
        if asked != signed:
            return f"{request.step} asks for {what} {_short(asked)}, and the job file says {_short(signed)}"
    return ""


def shows_one_client(request: type[Request[Any]]) -> bool:
    """Whether an answer shows of one client what secure sums can be made of: a job that has them may not ask it.

    Of metrics those on test rows pass, as every job asks them: others are of training rows at weights of choice.
    """
    if issubclass(request, MaskedRequest):
        return False
    return bool(seen_in_the_clear(request)) or (Kind.METRIC in request.kinds and request not in SHARED_REQUESTS)


class HeldTo:
    """A job file to which several clients in one process hold the requests that all of them are asked."""

    def __init__(self, job: JobFile) -> None:
        """Begin with no request."""
        self._job = job
        self._last: tuple[Request[Any] | None, int] = None, 0
        self._found = ""

    def contradiction(self, request: Request[Any], round_num: int = 0) -> str:
        """As the function: found once for a request, which the next client is asked right after."""
        if self._last[0] is not request or self._last[1] != round_num:
            self._found, self._last = contradiction(self._job, request, round_num), (request, round_num)
        return self._found


def asked_of(job: JobFile) -> tuple[type[Request[Any]], ...]:
    """Requests that the job asks every client, those of secure sums as they are masked."""
    method = method_of(job.method)
    masked = {m.asks: m for m in method.masked(job.method)} if job.privacy.secure else {}
    return tuple(masked.get(request, request) for request in method.asks(job.method))


def chooses_by_folds(job: JobFile) -> bool:
    """Whether a job leaves its ridge or its lengthscale to sums over folds of the clients' training rows."""
    ridge = getattr(job.method, "ridge", None)
    is_open = lengthscale(job) == AUTO or ridge == AUTO or isinstance(ridge, list)
    return is_open and method_of(job.method).needs(job.method) is Needs.FEATURES


def _pairs(job: JobFile, request: Request[Any], *, former: bool) -> Iterator[tuple[str, object, object]]:
    """What, as the request has it, as the file has it."""
    if isinstance(request, DescribeDataRequest) and job.data is not None:
        schema = data_schema(job)
        yield "data set", request.dataset, job.cohort.dataset
        yield from _column_pairs(request.schema, schema)
        for field in fields(schema):
            asked = getattr(request.schema, field.name)
            if field.name == "columns" or (field.name == "features" and schema.columns):
                continue  # the clients agree on them
            if field.name == "by_record" and not asked:
                continue  # a run that a release without it began; a client refuses it to new ones
            # Clients that join an earlier job's, by a file that the job names, take over its classes.
            joins = field.name == "classes" and named_files(job)
            # What a client lets others know by drawn splits, its policy decides: `policy.drawn_splits`.
            drew = former and field.name in _SPLIT and "split" not in job.data.model_fields_set and not asked
            if not joins and not drew and asked != method_of(job.method).schema.get(field.name, ...):
                yield field.name, asked, getattr(schema, field.name)
    elif isinstance(request, FindColumnsRequest) and job.data is not None:
        yield "data set", request.dataset, job.cohort.dataset
        yield "columns", request.columns, open_plans(job.data.plans)
    elif isinstance(request, MapFeaturesRequest) and not named_files(job):
        yield from _feature_pairs(job, request.features)
    elif isinstance(request, TrainingFoldSumsRequest):
        yield from _choice_pairs(job, request.features)
    elif isinstance(request, StandardiseRequest) and not (named_files(job) or job.start_from):
        yield from _scale_pairs(job, request)
    yield from _network_pairs(job, request)
    method = method_of(job.method)
    begun = method.begun(job.method)
    for field in fields(request):
        key = method.fixed.get(field.name, "")
        signed = getattr(job.method, key, None)
        asked, within = getattr(request, field.name), begun.get(key)
        text = isinstance(signed, str) and isinstance(asked, str) and signed != AUTO
        if not (isinstance(signed, int | float) or text):
            continue  # a rule stands there
        if within is None:
            yield field.name, asked, signed
        elif not within.holds(asked):
            yield field.name, asked, within.says
    if request.goes_on_from is not None and (job.former is not None or not job.start_from):
        yield "the state of job", request.goes_on_from, "" if job.former is None else job.former.job_id


def _column_pairs(asked: DataSchema, signed: DataSchema) -> Iterator[tuple[str, object, object]]:
    """What becomes of columns, but for levels and means that the file leaves to the clients."""
    for plan, own in zip_longest(as_asked(asked.columns, signed.columns), signed.columns):
        if plan != own:
            yield "a column", plan, own
    if signed.columns:
        yield "feature columns", asked.features, feature_names(asked.columns)


def _scale_pairs(job: JobFile, asked: StandardiseRequest) -> Iterator[tuple[str, object, object]]:
    data = job.data
    if data is None:
        return
    if data.classes:
        yield "classes", asked.classes, data_schema(job).classes
    if not isinstance(lengthscale(job), str):
        yield "median_distance", asked.median_distance, False
    if not data.standardise:
        yield "deviations", _other_than(asked.deviation, 1.0), []
        if not job.shifts_columns:
            yield "means", _other_than(asked.mean, 0.0), []
    allowed = [0.0, BOUND] if data.standardise and data.scales == "clipped" else [0.0]
    yield "bounds", _other_than(np.array(asked.bounds), *allowed), []


def _other_than(numbers: Array, *allowed: float) -> list[float]:
    """Those of the numbers that are none of a few."""
    found: list[float] = numbers[~np.isin(numbers, allowed)].tolist()
    return found


def _network_pairs(job: JobFile, request: Request[Any]) -> Iterator[tuple[str, object, object]]:
    section = method_of(job.method).network(job.method)
    if section is None:
        return
    for asked in (value for field in fields(request) if isinstance(value := getattr(request, field.name), NetworkSpec)):
        yield "a network", asked.kind, section.kind
        if asked.is_own:  # what it is made of, the client's own file says
            yield "a network", asked.name, section.own_name
            continue
        yield "widths", asked.widths, section.all_widths
        yield "an image", asked.image, tuple(section.image)
        yield "batch_norm", asked.batch_norm, section.normed


def _feature_pairs(job: JobFile, asked: FeatureSpec) -> Iterator[tuple[str, object, object]]:
    section, scale = job.features, lengthscale(job)
    yield "kernel", asked.kernel, section.kernel
    if section.kernel in EXACT_KERNELS:
        return
    yield "form", asked.form, section.form
    yield "law", asked.law.rpartition(":")[2], section.law or ""
    yield "num_frequencies", asked.num_frequencies, section.num_frequencies
    yield "seed", asked.seed, rng.seed(job.seed, "features") if section.seed is None else section.seed
    if not isinstance(scale, str):
        yield "lengthscales", asked.lengthscales, (scale,) if isinstance(scale, int | float) else tuple(scale)


def _choice_pairs(job: JobFile, asked: FeatureSpec) -> Iterator[tuple[str, object, object]]:
    """Of a choice by sums over folds: a job without one asks for none, and a map is the file's, or the first of it."""
    section = job.features
    yield "a choice by folds", True, chooses_by_folds(job)
    if section.kernel in EXACT_KERNELS or named_files(job):
        return
    fewer = min(asked.num_frequencies, section.num_frequencies)
    seed = rng.seed(job.seed, "features") if section.seed is None else section.seed
    yield "law", asked.law.rpartition(":")[2], section.law or ""
    signed = replace(asked, kernel=section.kernel, form=section.form, num_frequencies=fewer, seed=seed)
    yield "a map to choose by", asked, signed


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
