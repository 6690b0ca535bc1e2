"""The client's half of personal components and densities: choose a mixture, keep what follows, measure it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from kernfed import files, rng
from kernfed.arrays import Floats, Integers
from kernfed.errors import WireError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import draw_frequencies
from kernfed.maths.folds import FOLDS, deal
from kernfed.methods.personalise.component_messages import (
    ComponentsFound,
    DensityFound,
    FindComponentsRequest,
    FindDensityRequest,
)
from kernfed.methods.personalise.components import ALL_ALIKE, ALONE, Components, choose, choose_by, mixtures, principal
from kernfed.methods.personalise.density import log_peak, score
from kernfed.methods.personalise.embeddings import View, squared_distances
from kernfed.methods.personalise.messages import EmbedRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.state import Personal, personal, scaled_columns

FILE, DENSITY_FILE = "components.csv", "density.csv"


def find_components(job: LocalJob, request: FindComponentsRequest) -> ComponentsFound:
    """Choose by own rows, keep the components in the client's state folder, and measure them on its test rows.

    Raises:
        WireError: The embedding does not hold second moments of columns, or has fewer columns.
    """
    state = personal(job)
    asked = state.request
    spec = asked.features
    if spec.kernel is not Kernel.POLYNOMIAL2 or asked.view is not View.X or spec.num_columns < request.num_components:
        raise WireError(
            f"{request.step}: {request.num_components} components need an embedding of x by polynomial2, of as many "
            f"columns at least; this one is of {asked.view} by {spec.kernel}, of {spec.num_columns} columns"
        )
    own, means, weights, fold = _proposed(job, state)
    rows = _scaled(scaled_columns(job, asked), asked)
    chosen = choose(weights, own, means, state.phi, rows, fold, request.num_components)
    found = [principal(w @ means, request.num_components) for w in weights[[chosen, ALONE, ALL_ALIKE]]]
    _keep(job, asked, found[0])
    test = _scaled((job.x_test - asked.mean) / asked.deviation, asked)
    kept, alone, alike = (components.squared_error(test) for components in found)
    return ComponentsFound(
        num_rows=job.num_rows,
        num_test_rows=job.num_test_rows,
        personal=kept,
        local=alone,
        pooled=alike,
        total=float(np.square(test - test.mean(axis=0)).sum()) if len(test) else 0.0,
    )


def find_density(job: LocalJob, request: FindDensityRequest) -> DensityFound:
    """Choose by own rows, keep the density in the client's state folder, and measure it on its test rows.

    Raises:
        DataError: The features of the test rows do not fit into memory.
        WireError: The embedding is not one of x by a Gaussian kernel.
    """
    state = personal(job)
    asked = state.request
    if asked.features.kernel is not Kernel.GAUSSIAN or asked.view is not View.X:
        raise WireError(
            f"{request.step}: a density needs an embedding of x by a Gaussian kernel; this one is of {asked.view} by "
            f"{asked.features.kernel}"
        )
    own, means, weights, fold = _proposed(job, state)
    chosen = choose_by(weights, own, means, state.phi, fold, lambda mixed, held: score(mixed, state.phi[held]))
    found = [w @ means for w in weights[[chosen, ALONE, ALL_ALIKE]]]
    _keep_density(job, asked, found[0])
    test = (job.x_test - asked.mean) / asked.deviation
    job.require(len(test) * asked.features.num_features, "the features of the test rows")
    phi = job.feature_map(asked.features)(torch.from_numpy(np.ascontiguousarray(test))).numpy()
    kept, alone, alike = (score(embedding, phi) for embedding in found)
    total = score(phi.mean(axis=0), phi) if len(phi) else 0.0
    return DensityFound(
        num_rows=job.num_rows, num_test_rows=job.num_test_rows, personal=kept, local=alone, pooled=alike, total=total
    )


def _proposed(job: LocalJob, state: Personal) -> tuple[int, Floats, Floats, Integers]:
    """Place of this client, embeddings (B, M), mixtures of them (S, B) to choose from, and the fold of each own row."""
    shared, own = state.needed_shared(), state.index(job)
    means, num_rows = np.array(shared.means, dtype=np.float64), np.asarray(shared.num_rows, dtype=np.float64)
    means[own] = state.phi.mean(axis=0)
    noise = np.asarray(shared.traces, dtype=np.float64) / num_rows
    weights = mixtures(own, num_rows, squared_distances(means)[own] - noise, state.weights)
    order = rng.stream(state.request.seed, "components", job.client).permutation(len(state.phi))
    return own, means, weights, deal(order, state.unit, min(FOLDS, int(state.unit.max()) + 1))


def _scaled(columns: Floats, asked: EmbedRequest) -> Floats:
    """Columns divided by the embedding's lengthscales, as its features see them, (n, d)."""
    scaled: Floats = columns / np.asarray(asked.features.lengthscales)
    return scaled


def _keep(job: LocalJob, asked: EmbedRequest, found: Components) -> None:
    """Write mean and scale of the columns, in the units of the data, and a line of loadings for each component."""
    scale = job.deviation * asked.deviation * np.asarray(asked.features.lengthscales)
    mean = job.mean + job.deviation * asked.mean + scale * found.mean
    lines = [
        ["row", "variance", *job.schema.features],
        ["mean", "", *mean.tolist()],
        ["scale", "", *scale.tolist()],
    ]
    for i, (variance, direction) in enumerate(zip(found.variances, found.directions.T, strict=True), start=1):
        lines.append([i, float(variance), *direction.tolist()])
    _write(job, FILE, lines)


def _keep_density(job: LocalJob, asked: EmbedRequest, found: Floats) -> None:
    """Write mean and scale of the columns, in the units of the data, the peak, and a line for each cosine."""
    drawn = draw_frequencies(asked.features)
    lengths = np.broadcast_to(np.asarray(asked.features.lengthscales), len(job.schema.features))
    scale = job.deviation * asked.deviation
    factors = math.sqrt(2.0 / len(found)) * found
    lines = [
        ["row", "factor", "phase", *job.schema.features],
        ["mean", "", "", *(job.mean + job.deviation * asked.mean).tolist()],
        ["scale", "", "", *scale.tolist()],
        ["log_peak", log_peak(lengths * scale), "", *([""] * len(scale))],
    ]
    for i, (factor, shift, frequency) in enumerate(zip(factors, drawn.phase, drawn.omega, strict=True), start=1):
        lines.append([i, float(factor), float(shift), *frequency.tolist()])
    _write(job, DENSITY_FILE, lines)


def _write(job: LocalJob, name: str, lines: Iterable[Sequence[object]]) -> None:
    """Write a table into the client's state folder."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    job.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace(job.folder / name, text.getvalue().encode(), durable=job.durable, mode=0o600)


STEPS: dict[type[Any], Any] = {FindComponentsRequest: find_components, FindDensityRequest: find_density}
"""Steps of this module, by the request that they answer."""
