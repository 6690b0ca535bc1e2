"""A client's memory for personalisation: embedded rows, what all clients shared, weights, its own model."""

from __future__ import annotations

import hashlib
import json
import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernfed import files, rng
from kernfed.arrays import Array, Floats, Integers
from kernfed.errors import JobStateMissingError, PolicyError, WireError
from kernfed.maths.triangles import pack
from kernfed.methods.personalise.clusters import Labels
from kernfed.methods.personalise.crossfit import Target
from kernfed.methods.personalise.crossfit_messages import CandidateGrid
from kernfed.methods.personalise.embedding_messages import EmbedRequest
from kernfed.methods.personalise.embeddings import Embedding, View
from kernfed.methods.personalise.messages import ShareRequest
from kernfed.methods.personalise.mixing.shared import Shared
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.embedded import Beside, embedding_features, refuse_few_embedded, rows_beside
from kernfed_client.steps.evaluation import encode_targets

_STATE = "personalise"

MAX_TEACHERS = 30
"""Teachers that `model.json` names."""

Scorer = Callable[[LocalJob], Floats]
"""Scores of the test rows in the units of encoded targets, (m, C)."""


@dataclass
class Personal:
    """One job's personalisation at this client; made by `personalise.embed`."""

    request: EmbedRequest
    phi: Floats
    """Embedding features of the training rows, (n, M)."""
    inputs: Floats
    """Of the ridge model: the constant if there is an intercept, then the (centred) features, (n, Q)."""
    targets: Floats
    """Centred like the features, (n, C)."""
    unit: Integers
    """Number of each row's content, (n,): copies of a row, and rows of a group, have one."""
    beside: Beside
    """Unlabelled rows that are embedded with the training rows."""
    basis: Floats | None = None
    """Directions of the features in which ridge models lie, (P, R), where they do not use all."""
    shared: ShareRequest | None = None
    of_all: _OfAll | None = None
    """What follows from `shared` alone, as it was asked for last."""
    weights: Floats | None = None
    """Over the clients of `shared`, (B,)."""
    choice: str = ""
    scorer: Scorer | None = None
    """Of the personal model."""
    fits: dict[CandidateGrid, Target] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Inputs before the features: 1 for an intercept, else 0."""
        return 1 if self.request.intercept else 0

    @property
    def embedded(self) -> Floats:
        """Embedding features of all rows that the client's embedding is of, training rows first, (n + m, M)."""
        return np.vstack([self.phi, self.beside.phi]) if len(self.beside.phi) else self.phi

    @property
    def used(self) -> Floats:
        """Inputs of ridge models: all, or the constant and the features' directions; (n, q)."""
        if self.basis is None:
            return self.inputs
        return np.hstack([self.inputs[:, : self.first], self.inputs[:, self.first :] @ self.basis])

    def use_directions(self, basis: Array, step: str) -> None:
        """Let ridge models lie in these directions of the features from here on.

        Raises:
            WireError: They are of another number of features.
        """
        num_features = self.inputs.shape[1] - self.first
        if basis.shape[0] != num_features:
            raise WireError(f"{step}: directions of {basis.shape[0]} features, this client has {num_features}")
        self.basis = np.asarray(basis, np.float64)
        self.fits.clear()

    def expanded(self, coefficients: Floats) -> Floats:
        """Coefficients of all inputs, (Q, C), from those of the inputs that are used."""
        if self.basis is None:
            return coefficients
        return np.vstack([coefficients[: self.first], self.basis @ coefficients[self.first :]])

    def target(self, job: LocalJob, grid: CandidateGrid) -> Target:
        """Cross-fit this client over a grid; made once.

        Raises:
            JobStateMissingError: Nothing was shared yet.
            WireError: What was shared has no normal equations.
        """
        if not grid.shares or grid.shares[-1] != 1.0 or not grid.ridges:
            raise WireError("personalise.crossfit: a grid without a ridge, or whose last share is not 1")
        if grid not in self.fits:
            sums = self.sums(job)
            inputs = self.used
            penalised = np.ones(inputs.shape[1])
            penalised[: self.first] = 0.0
            scale = 1.0 if self.basis is None else self.basis.shape[1] / self.basis.shape[0]
            own = self.teachers(job).index(self.index(job))
            self.fits[grid] = Target(
                own, sums, inputs, self.targets, self.phi, grid, penalised, scale, self.unit, self.beside.phi
            )
        return self.fits[grid]

    def teachers(self, job: LocalJob) -> list[int]:
        """Places, among those who shared, of the clients from which this one can learn, itself among them."""
        shared, own = self.needed_shared(), self.index(job)
        withheld = set(shared.withheld)
        return [i for i, client in enumerate(shared.clients) if i == own or client not in withheld]

    def sums(self, job: LocalJob) -> Shared:
        """Sums over rows of the `teachers`; of this client from its own rows where it has not shared them.

        Raises:
            JobStateMissingError: Nothing was shared yet.
            WireError: What was shared has no normal equations.
        """
        shared = self.needed_shared()
        if shared.grams.shape[1] == 0:
            raise WireError("personalise: the clients have not shared normal equations")
        if not shared.withheld:
            self.of_all = _of_all(shared)
            return self.of_all.sums
        kept = self.teachers(job)
        n, means, noise, grams, moments, squares = (np.array(array, np.float64)[kept] for array in _arrays(shared))
        found = Shared(n, means, noise, grams, moments, squares)
        if job.client in shared.withheld:
            i = kept.index(self.index(job))
            found.grams[i], found.moments[i], found.squares[i] = self.normal_equations()
        return found

    def normal_equations(self) -> tuple[Floats, Floats, float]:
        """Of this client's rows: the upper triangle of X'X/n, X'Y/n, and the mean of |y|²."""
        x, y = self.used, self.targets
        return pack(x.T @ x / len(x)), x.T @ y / len(x), float(np.square(y).sum()) / len(x)

    def facts(self) -> dict[str, Any]:
        """From whom the model was learned, for its `model.json`: teachers and their weights, most first.

        Beyond `MAX_TEACHERS` their number and sum: every client has such a file.
        """
        if self.weights is None or self.shared is None:
            return {}
        order = [int(k) for k in np.argsort(-self.weights, kind="stable") if self.weights[k] > 0]
        named, rest = order[:MAX_TEACHERS], order[MAX_TEACHERS:]
        others = {"others": {"clients": len(rest), "weight": float(self.weights[rest].sum())}} if rest else {}
        return others | {
            "learns_from": [{"client": self.shared.clients[k], "weight": float(self.weights[k])} for k in named],
            "found_by": self.choice or "Q-aggregation",
        }

    def learn(self, job: LocalJob, weights: Floats, choice: str) -> None:
        """Keep weights over the `teachers`, and the way in which they were found, in words."""
        self.weights = np.zeros(len(self.needed_shared().clients))
        self.weights[self.teachers(job)] = weights
        self.choice = choice

    def needed_shared(self) -> ShareRequest:
        """The data that all clients shared.

        Raises:
            JobStateMissingError: Nothing yet.
        """
        if self.shared is None:
            raise JobStateMissingError("this client holds nothing that others shared; personalise.share comes first")
        return self.shared

    def index(self, job: LocalJob) -> int:
        """Place of this client among those who shared.

        Raises:
            WireError: It is not among them.
        """
        clients = self.needed_shared().clients
        if job.client not in clients:
            raise WireError("personalise.share: this client is not among those whose embeddings are handed on")
        return clients.index(job.client)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _OfAll:
    """A message of what all have shared, and its sums."""

    request: ShareRequest
    sums: Shared


_OF_ALL: weakref.WeakValueDictionary[int, _OfAll] = weakref.WeakValueDictionary()
"""By the identity of the message: the clients of a simulation all have the same one."""


def _of_all(shared: ShareRequest) -> _OfAll:
    """The sums of a message, made once for all clients of this process."""
    found = _OF_ALL.get(id(shared))
    if found is None:
        n, means, noise, grams, moments, squares = (np.asarray(array, np.float64) for array in _arrays(shared))
        found = _OF_ALL[id(shared)] = _OfAll(shared, Shared(n, means, noise, grams, moments, squares, _labels(shared)))
    return found


def _arrays(shared: ShareRequest) -> tuple[Array, ...]:
    """Rows, embeddings and their expected squared errors, and normal equations, each of all clients."""
    noise = shared.traces / shared.rows_embedded
    return shared.num_rows, shared.means, noise, shared.grams, shared.moments, shared.squares


def _labels(shared: ShareRequest) -> dict[int, Labels]:
    """Clusters by their number.

    Raises:
        WireError: A client is in a cluster that there is not.
    """
    found = {}
    for c in shared.clusterings:
        if c.labels.dtype.kind != "i" or not ((c.labels >= 0) & (c.labels < c.num_clusters)).all():
            raise WireError(f"personalise.share: labels of {c.num_clusters} clusters that are not from 0 on")
        found[c.num_clusters] = c.labels.astype(np.intp)
    return found


def begin(job: LocalJob, request: EmbedRequest) -> Personal:
    """Embed the training rows and keep them, in place of what was kept before.

    Raises:
        JobStateMissingError: The features were not computed yet.
        WireError: The request is for other columns than this job's.
    """
    z, y = job.z_train.cpu().numpy(), job.y_train.cpu().numpy()
    columns = scaled_columns(job, request)
    inputs = np.hstack([np.ones((len(z), 1)), z]) if request.intercept else z
    if request.features.num_columns != columns.shape[1]:
        raise WireError(f"{request.step}: features of {request.features.num_columns} columns for {columns.shape[1]}")

    refuse_few_embedded(job, request.features, columns)
    phi = embedding_features(job, request, columns, "the features of all rows")
    beside = rows_beside(job, request)
    job.forget(_STATE)
    return job.memo(_STATE, lambda: Personal(request, phi, inputs, y, job.together(all_columns(job)), beside))


def personal(job: LocalJob) -> Personal:
    """The state that `begin` made.

    Raises:
        JobStateMissingError: It has not been called since the features were computed.
    """

    def missing() -> Personal:
        raise JobStateMissingError("this client holds no state from step personalise.embed; prepare it again")

    return job.memo(_STATE, missing)


def all_columns(job: LocalJob) -> Floats:
    """Columns x and y of the training rows, as the job has them scaled, (n, P + C)."""
    return np.hstack([job.x_train, encode_targets(job, job.targets_train)])


def scaled_columns(job: LocalJob, request: EmbedRequest) -> Floats:
    """The columns of the view, scaled as asked.

    Raises:
        WireError: Scales of another shape, a deviation that is not above 0, or an order of other classes.
    """
    columns = all_columns(job) if request.view is View.XY else job.x_train
    if request.class_order and request.view is View.XY:
        if sorted(request.class_order) != list(range(len(job.classes))):
            raise WireError(f"{request.step}: an order of other classes than the {len(job.classes)} of this job")
        x, y = columns[:, : job.x_train.shape[1]], columns[:, job.x_train.shape[1] :]
        if job.num_outputs == 1:
            ordered = y if request.class_order[0] == 0 else 1.0 - y
        else:
            ordered = y[:, list(request.class_order)]
        columns = np.hstack([x, ordered])
    if request.mean.shape != (columns.shape[1],) or not (request.deviation > 0).all():
        raise WireError(
            f"{request.step}: means of shape {request.mean.shape} for {columns.shape[1]} columns, or a deviation that "
            "is not above 0"
        )
    scaled: Floats = (columns - request.mean) / request.deviation
    return scaled


def noise_stream(job: LocalJob, request: EmbedRequest) -> rng.Stream:
    """Source of this client's noise: a secret of its own, so that nobody else can take the noise off.

    There is one draw per job, data set and view, whatever numbers a request holds, for the mean of many draws would
    reveal the embedding. A simulation, which keeps no secrets, uses the seed of the request.
    """
    secret = _secret(job) if job.durable else str(request.seed)
    return rng.stream(0, "personalise", "noise", secret, job.job_id, job.client, job.dataset, request.view)


def release(job: LocalJob, request: EmbedRequest, make: Callable[[], Embedding]) -> Embedding:
    """The one noised embedding of this job, data set and view: made once, kept, and given again to the same request.

    Two embeddings with the same noise would tell their difference exactly, and with other noise their mean would tell
    more than either. It outlasts the process and the end of the job.

    Raises:
        PolicyError: It was made for a request with other scales, features or noise.
    """
    asked = hashlib.sha256(repr((request.features, request.noise_factor)).encode())
    for array in (request.mean, request.deviation):
        asked.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    named = hashlib.sha256(json.dumps([job.job_id, job.dataset, request.view]).encode()).hexdigest()
    path = job.file.state / "noised" / f"{named}.json"
    kept = job.memory(_Released).texts
    if job.durable and path.exists():
        kept[named] = path.read_text(encoding="utf-8")
    if named not in kept:
        made = make()
        facts = {
            "asked": asked.hexdigest(),
            "num_rows": made.num_rows,
            "mean": made.mean.tolist(),
            "trace": made.trace,
        }
        kept[named] = json.dumps(facts)
        if job.durable:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.replace(path, kept[named].encode(), durable=True, mode=0o600)
    found = json.loads(kept[named])
    if found["asked"] != asked.hexdigest():
        raise PolicyError(
            f"{request.step}: this job had its noised embedding of data set {job.dataset!r}, view {request.view}, with "
            "other scales, features or noise. A second one would take noise off the first; submit a new job"
        )
    return Embedding(found["num_rows"], np.array(found["mean"], dtype=np.float64), found["trace"])


@dataclass
class _Released:
    """Noised embeddings that left in this job, as they are kept on disk."""

    texts: dict[str, str] = field(default_factory=dict)


def _secret(job: LocalJob) -> str:
    path = job.file.state / "noise.key"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists() or not path.stat().st_size:  # a crash of earlier releases left it empty
        files.replace(path, secrets.token_hex(32).encode(), durable=True, mode=0o600)
    return path.read_text(encoding="ascii").strip()
