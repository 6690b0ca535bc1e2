"""A request that asks for more than the client may take is refused before memory is taken."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
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
    MapFeaturesRequest,
    MissingRule,
    StandardiseRequest,
)
from kernfed.jobs.client_file import ClientFile
from kernfed.methods.heads.messages import HeadLoss, HeadSolver, HeadStepRequest, OpenHeadRequest
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import DrawDictionaryRequest, OpenStreamRequest
from kernfed.methods.reweight.mixture_messages import FoldSumsRequest
from kernfed.methods.reweight.ratio_spec import PLAIN_COLUMNS
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
    return make_spec(kernel, form, COLUMNS, 1.0, num, 5)


def dictionary(num: int, own: int, pooled: bool) -> DrawDictionaryRequest:
    return DrawDictionaryRequest(
        dictionary=Dictionary((1.0,) * 8, num, COLUMNS, 3),
        mixing=Mixing.ADAPTIVE,
        weight_learning_rate=0.0,
        bin_size=2,
        exploration=1.0,
        regularisation=0.0,
        own_frequencies=own,
        pooled=pooled,
    )


HOSTILE: dict[str, Callable[[], Request[Any]]] = {
    "features of few rows": lambda: MapFeaturesRequest(features=map_of(3_000_000), num_outputs=1),
    "frequencies of many columns": lambda: MapFeaturesRequest(features=map_of(30_000), num_outputs=1),
    "the kernel between landmarks": lambda: MapFeaturesRequest(
        features=map_of(2000, FeatureForm.NYSTROEM), num_outputs=1
    ),
    "copies of the features": lambda: MapFeaturesRequest(features=map_of(5000), num_outputs=1, copies=64),
    "pairs of columns": lambda: MapFeaturesRequest(
        features=map_of(0, kernel=Kernel.POLYNOMIAL2), num_outputs=1, copies=4
    ),
    "kernels of a dictionary": lambda: dictionary(10_000, 0, False),
    "an own model": lambda: dictionary(10, 2000, False),
    "sums over folds": lambda: FoldSumsRequest(
        features=PLAIN_COLUMNS,
        axes=np.zeros((0, 0)),
        map=map_of(400),
        num_folds=100,
        num_outputs=0,
        num_points=60,
        seed=1,
    ),
    "the basis of a solver": lambda: HeadStepRequest(
        solver=HeadSolver.LANCZOS,
        weights=np.zeros((2001, 1)),
        direction=np.ones((2001, 1)),
        ridge=1.0,
        damping=0.0,
        tolerance=1e-3,
        max_iterations=10,
        rank=1_000_000,
        max_bytes=1 << 40,
    ),
}


def prepared() -> LocalJob:
    x = np.random.default_rng(1).normal(size=(60, COLUMNS))
    train = PartitionData(x, None, x[:, 0], 0, np.arange(60))
    test = replace(train, x=x[:0], y=x[:0, 0], row_numbers=np.arange(0))
    file = ClientFile(device="cpu", max_memory_bytes=LIMIT)
    job = LocalJob("j", "a", file, load=lambda *_: LocalData(train, test, 0, ()))
    scale = StandardiseRequest(classes=(), mean=np.zeros(COLUMNS), deviation=np.ones(COLUMNS), median_distance=False)
    for request in (DescribeDataRequest(dataset="d", schema=SCHEMA), scale):
        STEPS[type(request)](job, request)
    return job


@pytest.mark.parametrize("case", HOSTILE)
def test_refused_before_memory_is_taken(case: str) -> None:
    """The refusal names the remedy at both ends, and nothing of that size was ever allocated."""
    job, request = prepared(), HOSTILE[case]()
    before: list[Request[Any]] = []
    if isinstance(request, DrawDictionaryRequest):
        before = [
            OpenStreamRequest(norm=2.0, target_low=0.0, target_span=1.0, loss=Loss.SQUARED, seed=1, outlier_spans=5.0)
        ]
    if isinstance(request, HeadStepRequest):
        opened = OpenHeadRequest(
            loss=HeadLoss.SQUARED, num_features=2001, num_outputs=1, bias=True, validation_fraction=0.0, seed=1
        )
        before = [MapFeaturesRequest(features=map_of(2000), num_outputs=1), opened]
    for honest in before:
        STEPS[type(honest)](job, honest)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"may be used here; lower .* in the job, raise max_memory_bytes"):
            STEPS[type(request)](job, request)
        assert tracemalloc.get_traced_memory()[1] < LIMIT // 2
    finally:
        tracemalloc.stop()
