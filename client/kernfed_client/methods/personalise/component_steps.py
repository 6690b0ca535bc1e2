"""The client's half of personal components, densities and centres: choose a mixture, keep what follows, measure it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kernfed import files, rng
from kernfed.arrays import Flags, Floats, Integers
from kernfed.errors import WireError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import draw_frequencies
from kernfed.maths.folds import FOLDS, deal
from kernfed.methods.personalise.columns.centres import Centres, Waves, of_embedding, of_rows, telling
from kernfed.methods.personalise.columns.components import Components, choose, principal
from kernfed.methods.personalise.columns.density import log_peak, score
from kernfed.methods.personalise.columns.mixtures import ALL_ALIKE, ALONE, choose_by, mixtures
from kernfed.methods.personalise.component_messages import (
    ComponentsFound,
    DensityFound,
    FindCentresRequest,
    FindComponentsRequest,
    FindDensityRequest,
)
from kernfed.methods.personalise.embedding_messages import EmbedRequest
from kernfed.methods.personalise.embeddings import View, squared_distances
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.state import Personal, personal, scaled_columns

FILE, DENSITY_FILE, CENTRES_FILE = "components.csv", "density.csv", "centres.csv"
_POINTS = 300
"""Points beside own rows where centres may lie at first."""


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
    given = _proposed(job, state)
    means, weights = given.means, given.weights
    chosen = choose(weights, given.own, means, given.phi, given.rows, given.fold, request.num_components)
    found = [principal(w @ means, request.num_components) for w in weights[[chosen, ALONE, ALL_ALIKE]]]
    _keep(job, asked, found[0])
    test = _scaled((job.x_test - asked.mean) / asked.deviation, asked)
    return _measured(job, test, [components.squared_error(test) for components in found])


def find_density(job: LocalJob, request: FindDensityRequest) -> DensityFound:
    """Choose by own rows, keep the density in the client's state folder, and measure it on its test rows.

    Raises:
        DataError: The features of the test rows do not fit into memory.
        WireError: The embedding is not one of x by a Gaussian kernel.
    """
    state = personal(job)
    asked = state.request
    _check_gaussian(asked, request.step)
    given = _proposed(job, state)
    found = [w @ given.means for w in given.weights[[given.nearest_density(), ALONE, ALL_ALIKE]]]
    _keep_density(job, asked, found[0])
    test = (job.x_test - asked.mean) / asked.deviation
    job.require(len(test) * asked.features.num_features, "the features of the test rows")
    phi = job.feature_map(asked.features)(torch.from_numpy(np.ascontiguousarray(test))).numpy()
    kept, alone, alike = (score(embedding, phi) for embedding in found)
    total = score(phi.mean(axis=0), phi) if len(phi) else 0.0
    return DensityFound(
        num_rows=job.num_rows, num_test_rows=job.num_test_rows, personal=kept, local=alone, pooled=alike, total=total
    )


def find_centres(job: LocalJob, request: FindCentresRequest) -> ComponentsFound:
    """Choose by own rows, keep centres of k-means in the client's state folder, and measure them on its test rows.

    The mixture is the one whose density is nearest to own rows. Its centres are kept where they lose less on own rows
    than those of k-means on own rows alone, both found without the fold in which a row is.

    Raises:
        WireError: The embedding is not one of x by a Gaussian kernel.
    """
    state = personal(job)
    asked, num = state.request, request.num_centres
    _check_gaussian(asked, request.step)
    given = _proposed(job, state)
    means, weights, rows, lengths = given.means, given.weights, given.rows, np.asarray(asked.features.lengthscales)
    drawn = draw_frequencies(asked.features)
    waves = Waves(drawn.omega * lengths, drawn.phase)
    others = rng.stream(asked.seed, "centres", "points", job.client).normal(_POINTS, rows.shape[1]) / lengths

    def alone(seen: Floats) -> Centres:
        return of_rows(seen, num, rng.stream(asked.seed, "centres", job.client))

    def mixed(embedding: Floats) -> Centres:
        width = by_itself.width(rows)
        far = telling(embedding, waves, np.concatenate([rows, others]), num, width)
        return of_embedding(embedding, waves, [by_itself.places, far], width)

    by_itself, chosen, gain = alone(rows), given.nearest_density(), 0.0
    for embedding, held in given.by_folds(weights[chosen]):
        begun = alone(rows[~held])
        ended = of_embedding(embedding, waves, [begun.places], begun.width(rows[~held]))
        gain += begun.squared_error(rows[held]) - ended.squared_error(rows[held])
    alike = mixed(weights[ALL_ALIKE] @ means)
    found = alike if chosen == ALL_ALIKE else mixed(weights[chosen] @ means) if gain > 0.0 else by_itself
    _keep_centres(job, asked, found)
    test = _scaled((job.x_test - asked.mean) / asked.deviation, asked)
    return _measured(job, test, [centres.squared_error(test) for centres in (found, by_itself, alike)])


class _Proposed(NamedTuple):
    """What a client chooses from, and by which of its rows."""

    own: int
    """Place of this client."""
    means: Floats
    """Embeddings, (B, M)."""
    weights: Floats
    """Mixtures of them, (S, B)."""
    phi: Floats
    """Features of its own rows, unlabelled ones behind those that it trains on, (n, M)."""
    rows: Floats
    """Their columns divided by the embedding's lengthscales, (n, d)."""
    fold: Integers
    """Of each of these rows, (n,)."""

    def by_folds(self, weighed: Floats) -> Iterator[tuple[Floats, Flags]]:
        """A mixture without each fold of own rows in turn, (M,), and which rows these are, (n,)."""
        others = weighed.copy()
        others[self.own] = 0.0
        for apart in range(int(self.fold.max()) + 1 if self.fold.any() else 0):
            held = self.fold == apart
            yield others @ self.means + weighed[self.own] * self.phi[~held].mean(axis=0), held

    def nearest_density(self) -> int:
        """The mixture whose density is nearest to own rows."""
        own, means, weights, phi, _, fold = self
        return choose_by(weights, own, means, phi, fold, lambda mixed, held: score(mixed, phi[held]))


def _proposed(job: LocalJob, state: Personal) -> _Proposed:
    shared, own, asked = state.needed_shared(), state.index(job), state.request
    means, num_rows, phi = np.array(shared.means, dtype=np.float64), shared.rows_embedded, state.embedded
    means[own] = phi.mean(axis=0)
    noise = np.asarray(shared.traces, dtype=np.float64) / num_rows
    weights = mixtures(own, num_rows, squared_distances(means)[own] - noise, state.weights)
    order = rng.stream(asked.seed, "components", job.client).permutation(len(phi))
    unit = np.concatenate([state.unit, state.beside.unit + int(state.unit.max()) + 1])
    fold = deal(order, unit, min(FOLDS, int(unit.max()) + 1))
    columns = np.vstack([scaled_columns(job, asked), state.beside.columns])
    return _Proposed(own, means, weights, phi, _scaled(columns, asked), fold)


def _check_gaussian(asked: EmbedRequest, step: str) -> None:
    """Refuse another embedding than one of x by a Gaussian kernel.

    Raises:
        WireError: It is another one.
    """
    if asked.features.kernel is not Kernel.GAUSSIAN or asked.view is not View.X:
        raise WireError(
            f"{step}: this needs an embedding of x by a Gaussian kernel; this one is of {asked.view} by "
            f"{asked.features.kernel}"
        )


def _measured(job: LocalJob, test: Floats, errors: Sequence[float]) -> ComponentsFound:
    """Squared distances of scaled test rows, (m, d): of what is kept, of own rows alone, and of all rows alike."""
    return ComponentsFound(
        num_rows=job.num_rows,
        num_test_rows=job.num_test_rows,
        personal=errors[0],
        local=errors[1],
        pooled=errors[2],
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
    lines = [
        ["row", "variance", *job.schema.features],
        ["mean", "", *mean.tolist()],
        ["scale", "", *scale.tolist()],
    ]
    for i, (variance, direction) in enumerate(zip(found.variances, found.directions.T, strict=True), start=1):
        lines.append([i, float(variance), *direction.tolist()])
    _write(job, FILE, lines)


def _keep_centres(job: LocalJob, asked: EmbedRequest, found: Centres) -> None:
    """Write the scale of the columns, in the units of the data, and a line for each centre."""
    scale = job.deviation * asked.deviation * np.asarray(asked.features.lengthscales)
    places = job.mean + job.deviation * asked.mean + scale * found.places
    lines = [["row", "share", *job.schema.features], ["scale", "", *scale.tolist()]]
    for i, (share, place) in enumerate(zip(found.shares, places, strict=True), start=1):
        lines.append([i, float(share), *place.tolist()])
    _write(job, CENTRES_FILE, lines)


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


STEPS: dict[type[Any], Any] = {
    FindComponentsRequest: find_components,
    FindDensityRequest: find_density,
    FindCentresRequest: find_centres,
}
"""Steps of this module, by the request that they answer."""
