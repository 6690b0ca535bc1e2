"""A client with little memory, and requests that ask it for more than it may take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, make_spec
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import (
    DataSchema,
    DescribeDataRequest,
    LearningTask,
    MissingRule,
    StandardiseRequest,
)
from kernfed.jobs.client_file import ClientFile
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import LocalData
from kernfed_client.steps.registry import STEPS

LIMIT = 16 << 20
"""Bytes that the client may take."""
COLUMNS = 200
SCHEMA = DataSchema(
    task=LearningTask.REGRESSION,
    target="y",
    features=tuple(f"x{i}" for i in range(COLUMNS)),
    classes=(),
    missing=MissingRule.REFUSE,
    test_fraction=0.0,
    seed=1,
)


def map_of(num: int, form: FeatureForm = FeatureForm.COSINE, kernel: Kernel = Kernel.GAUSSIAN) -> FeatureSpec:
    """A feature map of the client's columns."""
    return make_spec(kernel, form, COLUMNS, 1.0, num, 5)


def prepared() -> LocalJob:
    """The client's job, with its rows described and scaled."""
    x = np.random.default_rng(1).normal(size=(60, COLUMNS))
    train = PartitionData(x, None, x[:, 0], 0, np.arange(60))
    test = replace(train, x=x[:0], y=x[:0, 0], row_numbers=np.arange(0))
    file = ClientFile(device="cpu", max_memory_bytes=LIMIT)
    job = LocalJob("j", "a", file, load=lambda *_: LocalData(train, test, 0, ()))
    scale = StandardiseRequest(classes=(), mean=np.zeros(COLUMNS), deviation=np.ones(COLUMNS), median_distance=False)
    for request in (DescribeDataRequest(dataset="d", schema=SCHEMA), scale):
        STEPS[type(request)](job, request)
    return job


def assert_refused_early(request: Request[Any], before: Sequence[Request[Any]] = ()) -> None:
    """The refusal names the remedy at both ends, and nothing of that size was ever allocated."""
    job = prepared()
    for honest in before:
        STEPS[type(honest)](job, honest)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"may be used here; lower .* in the job, raise max_memory_bytes"):
            STEPS[type(request)](job, request)
        assert tracemalloc.get_traced_memory()[1] < LIMIT // 2
    finally:
        tracemalloc.stop()
