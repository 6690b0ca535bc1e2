"""What a job file fixes of its method's requests, so that a client can hold a coordinator to a signed file.

Held to the file are the data set and its schema, the feature map as far as the file gives it, the job whose state is
gone on from, and the numbers that the method names in `Method.fixed`. What follows from the clients' rows, or from
rules such as `auto`, is not. A signed job may go on under a later release: who changes what a schema or a map is by
the file lets the former one pass here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from kernfed import rng
from kernfed.features.kernels import EXACT_KERNELS
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import DescribeDataRequest, MapFeaturesRequest
from kernfed.jobs.job_file import JobFile, data_schema, lengthscale, named_files
from kernfed.methods.registry import method_of

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
    if rounds and round_num > rounds:
        return f"{request.step} is asked in round {round_num}, and the job file says {rounds} rounds"
    for what, asked, signed in _pairs(job, request, former=former or bool(job.start_from)):
        if asked != signed:
            return f"{request.step} asks for {what} {_short(asked)}, and the job file says {_short(signed)}"
    return ""


def _pairs(job: JobFile, request: Request[Any], *, former: bool) -> Iterator[tuple[str, object, object]]:
    """What, as the request has it, as the file has it."""
    if isinstance(request, DescribeDataRequest) and job.data is not None:
        schema = data_schema(job)
        yield "data set", request.dataset, job.cohort.dataset
        for field in fields(schema):
            asked = getattr(request.schema, field.name)
            if field.name == "by_record" and not asked:
                continue  # a run that a release without it began; a client refuses it to new ones
            # Clients that join an earlier job's, by a file that the job names, take over its classes.
            joins = field.name == "classes" and named_files(job)
            # What a client lets others know by drawn splits, its policy decides: `policy.drawn_splits`.
            drew = former and field.name in _SPLIT and "split" not in job.data.model_fields_set and not asked
            if not joins and not drew and asked != method_of(job.method).schema.get(field.name, ...):
                yield field.name, asked, getattr(schema, field.name)
    elif isinstance(request, MapFeaturesRequest) and not named_files(job):
        yield from _feature_pairs(job, request.features)
    method = method_of(job.method)
    begun = method.begun(job.method)
    for field in fields(request):
        key = method.fixed.get(field.name, "")
        signed = getattr(job.method, key, None)
        if not isinstance(signed, int | float):
            continue
        asked, within = getattr(request, field.name), begun.get(key)
        if within is None:
            yield field.name, asked, signed
        elif not within.holds(asked):
            yield field.name, asked, within.says
    if request.goes_on_from is not None and (job.former is not None or not job.start_from):
        yield "the state of job", request.goes_on_from, "" if job.former is None else job.former.job_id


def _feature_pairs(job: JobFile, asked: FeatureSpec) -> Iterator[tuple[str, object, object]]:
    section, scale = job.features, lengthscale(job)
    yield "kernel", asked.kernel, section.kernel
    if section.kernel in EXACT_KERNELS:
        return
    yield "form", asked.form, section.form
    yield "num_frequencies", asked.num_frequencies, section.num_frequencies
    yield "seed", asked.seed, rng.seed(job.seed, "features") if section.seed is None else section.seed
    if not isinstance(scale, str):
        yield "lengthscales", asked.lengthscales, (scale,) if isinstance(scale, int | float) else tuple(scale)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
