"""The client's half of personal principal components: choose a mixture of embeddings, keep what follows, measure it."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from kernfed import files, rng
from kernfed.arrays import Floats
from kernfed.errors import WireError
from kernfed.features.kernels import Kernel
from kernfed.maths.folds import FOLDS, deal
from kernfed.methods.personalise.component_messages import ComponentsFound, FindComponentsRequest
from kernfed.methods.personalise.components import ALL_ALIKE, ALONE, Components, choose, mixtures, principal
from kernfed.methods.personalise.embeddings import View, squared_distances
from kernfed.methods.personalise.messages import EmbedRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.state import personal, scaled_columns

FILE = "components.csv"


def find_components(job: LocalJob, request: FindComponentsRequest) -> ComponentsFound:
    """Choose by own rows, keep the components in the client's state folder, and measure them on its test rows.

    Raises:
        WireError: The embedding does not hold second moments of columns, or has fewer columns.
    """
    state = personal(job)
    asked, shared, own = state.request, state.needed_shared(), state.index(job)
    spec = asked.features
    if spec.kernel is not Kernel.POLYNOMIAL2 or asked.view is not View.X or spec.num_columns < request.num_components:
        raise WireError(
            f"{request.step}: {request.num_components} components need an embedding of x by polynomial2, of as many "
            f"columns at least; this one is of {asked.view} by {spec.kernel}, of {spec.num_columns} columns"
        )
    means, num_rows = np.array(shared.means, dtype=np.float64), np.asarray(shared.num_rows, dtype=np.float64)
    means[own] = state.phi.mean(axis=0)
    noise = np.asarray(shared.traces, dtype=np.float64) / num_rows
    weights = mixtures(own, num_rows, squared_distances(means)[own] - noise, state.weights)
    order = rng.stream(asked.seed, "components", job.client).permutation(len(state.phi))
    fold = deal(order, state.unit, min(FOLDS, int(state.unit.max()) + 1))
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


def _scaled(columns: Floats, asked: EmbedRequest) -> Floats:
    """Columns divided by the embedding's lengthscales, as its features see them, (n, d)."""
    scaled: Floats = columns / np.asarray(asked.features.lengthscales)
    return scaled


def _keep(job: LocalJob, asked: EmbedRequest, found: Components) -> None:
    """Write mean and scale of the columns, in the units of the data, and a line of loadings for each component."""
    scale = job.deviation * asked.deviation * np.asarray(asked.features.lengthscales)
    mean = job.mean + job.deviation * asked.mean + scale * found.mean
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["row", "variance", *job.schema.features])
    lines.writerow(["mean", "", *mean.tolist()])
    lines.writerow(["scale", "", *scale.tolist()])
    for i, (variance, direction) in enumerate(zip(found.variances, found.directions.T, strict=True), start=1):
        lines.writerow([i, float(variance), *direction.tolist()])
    job.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace(job.folder / FILE, text.getvalue().encode(), durable=job.durable, mode=0o600)


STEPS: dict[type[Any], Any] = {FindComponentsRequest: find_components}
"""Steps of this module, by the request that they answer."""
