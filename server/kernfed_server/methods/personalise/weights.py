"""A personalised job at the coordinator: what its clients have shared, handed on, told and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import JobError, QuorumNotMetError
from kernfed.features.spec import FeatureForm
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.base import R, Request
from kernfed.maths.statistics import Moments, pool_moments, pooled_deviation
from kernfed.maths.tasks import TASKS
from kernfed.maths.triangles import packed_size
from kernfed.methods.personalise.choice import (
    FULL_GRID,
    LITE_GRID,
    WIDE_GRID,
    default_grid,
)
from kernfed.methods.personalise.crossfit_messages import CandidateGrid, Decisions
from kernfed.methods.personalise.embedding_messages import (
    ClientEmbedding,
    ColumnMomentsRequest,
    EmbedRequest,
    Landmarks,
)
from kernfed.methods.personalise.embeddings import View, squared_distances, view_spec
from kernfed.methods.personalise.messages import (
    Clustering,
    CollaborationWeights,
    Directions,
    EvaluatePersonalRequest,
    ShareRequest,
    Statistics,
    TellWeightsRequest,
)
from kernfed.methods.personalise.plausible import check_embedding
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed.wording import listed
from kernfed_server.jobs.evaluation import evaluate, local_requests, measured
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.start.scales import APART_WORDS, check_moments, moments_of, stands_apart
from kernfed_server.jobs.start.units import note_places
from kernfed_server.methods.personalise.directions import (
    Pooled,
    cluster_once,
)
from kernfed_server.methods.personalise.findings import finding_of, mean_weights, promises
from kernfed_server.methods.personalise.state import Collaboration, Targets, targets_of

_HELPS = "it gets no model: method.targets names others"
_NO_LEARNER = "none of the clients that method.targets names takes part, so nobody is left to learn"


@dataclass
class Personalisation:
    """One job: its settings as they came to be, and what its clients have shared."""

    setup: Setup
    settings: PersonaliseSettings
    cohort: Cohort
    run: Run
    fell_back: bool = False
    words: list[str] = field(default_factory=list)
    """Notes for people, for the job's findings."""
    embeddings: dict[str, ClientEmbedding] = field(default_factory=dict)
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    moments: dict[str, Moments] = field(default_factory=dict)
    """Each client's, of the columns that networks see and then of the targets."""
    joining: tuple[str, ...] = ()
    """Clients of this job that join those of an earlier one, who are not asked; empty: all are of this job."""
    column_mean: Floats = field(default_factory=lambda: np.zeros(0))
    """Of all rows, feature columns before targets, in the units of the data."""
    column_deviation: Floats = field(default_factory=lambda: np.zeros(0))
    chosen: tuple[CandidateGrid, Decisions] | None = None
    """What cross-fitting chose for all clients together."""
    embedded_by: EmbedRequest = field(init=False)
    """How the rows were embedded; set by `embed_by`."""
    pooled: Pooled | None = None
    """Of all inputs, where clients sent factors."""
    stopped: dict[str, int] = field(default_factory=dict)
    """The round from which a client's network is, where rows that are kept apart chose it."""
    points: Floats | None = None
    """Rows by whose kernel to all rows these are embedded, (L, P); None: random frequencies are drawn."""
    basis: Floats | None = None
    """Directions of the features in which ridge models lie, (P, R); None: they use all features."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Clients that take part and have shared an embedding, sorted."""
        return tuple(sorted(self.embeddings))

    @property
    def learners(self) -> tuple[str, ...]:
        """Clients of this job that get a personal model."""
        own = self.joining or self.clients
        return tuple(c for c in own if not self.settings.targets or c in self.settings.targets)

    @property
    def num_inputs(self) -> int:
        """Inputs Q of the ridge model."""
        return self.setup.num_features + int(self.setup.intercept)

    @property
    def num_used(self) -> int:
        """Inputs with which ridge models are solved."""
        if self.basis is None:
            return self.num_inputs
        return int(self.basis.shape[1]) + int(self.setup.intercept)

    async def ask_learners(self, request: Request[R], *, everyone: bool = True) -> dict[str, R]:
        """Ask the clients that get a personal model; the quorum counts among these where the job names them.

        Raises:
            QuorumNotMetError: Too few valid answers, or none of those that are named is left.
        """
        some = tuple(c for c in self.learners if c in self.cohort.clients) if self.settings.targets else None
        if some == ():
            raise QuorumNotMetError(_NO_LEARNER)
        return await self.cohort.ask(request, clients=some, everyone=everyone, drawn=some is not None)

    async def ask_each_learner(self, requests: Mapping[str, Request[R]]) -> dict[str, R]:
        """Ask each client that gets a personal model something of its own; quorum and errors as of `ask_learners`."""
        if not requests:
            raise QuorumNotMetError(_NO_LEARNER)
        return await self.cohort.ask_each(requests, drawn=bool(self.settings.targets))

    def say(self, words: str) -> None:
        """Tell the operator now, and again with the findings."""
        self.words.append(words)
        self.run.note(words)

    def seed(self, *names: str) -> int:
        """A seed of the job's, by name."""
        return rng.seed(self.setup.schema.seed, "personalise", *names)

    async def embed(self) -> None:
        """Agree on scales of x and y, and collect the embeddings."""
        setup, settings = self.setup, self.settings
        gate = Gate(self.cohort, self.run, strict=setup.strict)
        num_columns = len(setup.schema.features)
        described = await gate.once(
            "column moments",
            ColumnMomentsRequest(num_columns=num_columns + setup.num_outputs),
            check=lambda _, stated: check_moments(stated),
        )
        self.moments = {client: moments_of(m) for client, m in described.items()}
        pooled = pool_moments(self._without_apart())
        deviation = pooled_deviation(pooled)
        spec = view_spec(
            settings.view,
            num_columns,
            setup.num_outputs,
            kernel=settings.embedding_kernel,
            num_frequencies=settings.num_frequencies,
            lengthscales=settings.lengthscales,
            seed=self.seed("embedding"),
        )
        order, mean, scale = self._class_order(), pooled.mean.copy(), deviation.copy()
        if order and setup.num_outputs == 1:
            mean[num_columns:] = mean[num_columns:] if order[0] == 0 else 1.0 - mean[num_columns:]
        elif order:
            for values in (mean, scale):
                values[num_columns:] = values[num_columns:][list(order)]
        if not settings.scale_columns:
            scale[:] = 1.0
            # A constant in the target changes no weight; of one in the columns, `features.origin` takes care.
            centred = settings.noise is None and not TASKS[setup.schema.task].has_classes
            mean[: num_columns if centred else None] = 0.0
        used = slice(0, num_columns if settings.view is View.X else None)
        landmarks: tuple[Landmarks, ...] = ()
        if self.points is not None:
            num = len(self.points)
            spec = replace(spec, form=FeatureForm.NYSTROEM, num_frequencies=num, num_features=num)
            landmarks = (Landmarks(points=(self.points - mean[:num_columns]) / scale[:num_columns]),)
        request = EmbedRequest(
            view=settings.view,
            features=spec,
            landmarks=landmarks,
            mean=mean[used],
            deviation=scale[used],
            target_mean=pooled.mean[num_columns:],
            target_deviation=deviation[num_columns:],
            intercept=setup.intercept,
            noise_factor=settings.noise.factor if settings.noise else 0.0,
            seed=self.seed("noise"),
            class_order=order,
            unlabelled=settings.embed_unlabelled,
        )
        columns = slice(0, num_columns)
        self.column_mean, self.column_deviation = pooled.mean.copy(), deviation.copy()
        self.column_mean[columns] = setup.agreed.mean + setup.agreed.deviation * pooled.mean[columns]
        self.column_deviation[columns] *= setup.agreed.deviation
        await self.embed_by(request)
        if settings.noise:
            self.say(
                f"embeddings are ({settings.noise.epsilon:g}, {settings.noise.delta:g})-differentially private, one "
                f"row exchanged: normal noise of {settings.noise.factor:.4g} times the sensitivity 2 sqrt(2)/rows. "
                "This covers the embeddings alone. Moments of the columns, what training sends, and metrics leave "
                "without noise"
            )

    def _without_apart(self) -> list[Moments]:
        """The clients' moments; where one stands apart from all others, theirs, as in the scales of the data."""
        note_places(self.setup.schema, self.moments, self.run)
        if not self.setup.schema.clipped:
            return list(self.moments.values())
        apart = stands_apart(self.moments)
        for client, found in apart.items():
            if found.columns.any():
                self.say(
                    f"{client} has no say in the scale of {found.columns.sum()} columns of the embeddings{APART_WORDS}"
                )
        return [apart[client].without(m) for client, m in self.moments.items()]

    def _class_order(self) -> tuple[int, ...]:
        """In which order the columns of classes are embedded: by rows, so that names and order change nothing.

        A noised embedding is made once for a job and stays as it is; and lengthscales of the job file that name single
        columns are in the job's order. With either, so are the columns.
        """
        settings = self.settings
        if settings.view is View.X or settings.noise is not None or len(settings.lengthscales) > 2:
            return ()
        return self.setup.agreed.class_order

    async def embed_by(self, request: EmbedRequest) -> None:
        """Collect the embeddings that a request asks for."""
        gate = Gate(self.cohort, self.run, strict=self.setup.strict)
        self.embedded_by = request
        noisy = request.noise_factor > 0

        def check(_client: str, reply: ClientEmbedding) -> None:
            check_embedding(reply, request.features.kernel, noisy=noisy)

        self.embeddings = await gate.once("embeddings", request, check=check)
        if request.unlabelled:
            more = {c: e.rows_embedded - e.num_rows for c, e in sorted(self.embeddings.items()) if e.num_embedded}
            rows = listed([f"{count:,} rows of {client}" for client, count in more.items()])
            self.say(f"unlabelled rows in the embeddings: {rows or 'none; no client has an unlabelled partition'}")

    @property
    def _withheld(self) -> tuple[str, ...]:
        """Clients without normal equations, where others have shared them."""
        return tuple(c for c in self.clients if c not in self.statistics) if self.statistics else ()

    def fall_back(self) -> None:
        """Go on without normal equations: Q-aggregation as printed, and models from gradients."""
        self.fell_back = True
        weights = "paper" if self.settings.weights == "crossfit" else self.settings.weights
        trainer = "newton" if self.settings.trainer == "exact" else self.settings.trainer
        self.settings = self.settings.model_copy(update={"weights": weights, "trainer": trainer})

    async def told_weights(self, *, needed: bool) -> Collaboration:
        """Ask the clients for their weights.

        Args:
            needed: Whether training needs them; a client that does not tell gets no personal model then.

        Raises:
            JobError: They are needed, and nobody tells.
        """
        clients = self.clients
        rows = np.array([self.embeddings[c].num_rows for c in clients], dtype=np.float64)
        nothing = np.zeros((len(clients), len(clients)))
        empty = Collaboration(clients, rows, nothing, ("",) * len(clients), self.fell_back)
        replies: dict[str, CollaborationWeights] = {}
        try:
            replies = await self.ask_learners(TellWeightsRequest(num_clients=len(clients)))
        except QuorumNotMetError as err:
            if needed:
                raise JobError(
                    f'trainer = "{self.settings.trainer}" mixes models by collaboration weights, which too few clients '
                    f'may tell; allow collaboration_weights in their policies, or use trainer = "exact". {err}'
                ) from err
        withheld = set(self._withheld)
        choices = dict.fromkeys(set(clients) - set(self.learners), _HELPS)
        choices |= dict.fromkeys(set(clients) - set(self.joining or clients), "in the earlier job")
        choices |= {c: r.choice + ("; teaches nobody" if c in withheld else "") for c, r in replies.items()}
        found = empty.with_told({c: r.weights for c, r in replies.items()}, choices)
        silent = sorted(set(self.learners) - set(found.told))
        if silent:
            then = "they are left out of the weight matrix"
            if needed:
                then = "no personal model is trained for them"
                if self.settings.weights == "crossfit":
                    then += ", and they keep the ridge model that cross-fitting gave them"
            faults = self.cohort.faults
            wrong = sorted({f"{c}: {faults[c].message}" for c in silent if c in faults})
            why = f" ({'; '.join(wrong)})" if wrong else ""
            self.say(f"{', '.join(silent)}: collaboration weights not told{why}; {then}")
        return found

    def targets(self, found: Collaboration) -> Targets:
        """The models to train by the weights that were found; of small weights that are left out it is told."""
        targets = targets_of(found, self.settings.min_weight)
        if targets.dropped > 0:
            self.say(
                f"weights below {self.settings.min_weight:g} are left out of training, and the others scaled up: no "
                f"target loses more than {targets.dropped:.2g} of its weight"
            )
        return targets

    async def measure(self, federated: Array) -> RoundMetrics:
        """Metrics of personal models, of the global one, and of the clients alone.

        Each client's metrics are told; those of all rows together are of the clients that have a personal model, so
        that the columns compare like with like.
        """
        task = self.setup.schema.task
        metrics = await evaluate(self.setup, self.cohort, self.run, federated)
        asked = self.ask_learners(EvaluatePersonalRequest(), everyone=False)
        personal = await measured(asked, task, self.run, "no metrics of personal models")
        both = sorted(personal.clients.keys() & metrics.clients.keys())
        if not both or len(both) == len(metrics.clients):
            return metrics.merged(personal)
        requests = local_requests(self.setup, ridge_of(self.settings), both, federated)
        same = await measured(self.cohort.ask_each(requests, drawn=True), task, self.run)
        without = ", ".join(sorted(metrics.clients.keys() - personal.clients.keys()))
        self.say(f"no personal model for {without}; the metrics of all rows together are of the clients that have one")
        return replace(metrics, pooled={**metrics.pooled, **same.pooled}).merged(personal)

    def publish(self, found: Collaboration, metrics: RoundMetrics) -> None:
        """Tell people who learns from whom."""
        settings = self.settings
        distances, parts = self._distances(), [self.embeddings[c] for c in self.clients]
        finding = finding_of(
            found,
            distances,
            metrics,
            weights=settings.weights,
            trainer=settings.trainer,
            words=self.words,
            promises=promises(parts, found.weights, distances),
            learners=self.learners,
            rounds=self.stopped,
        )
        self.run.publish(finding)
        if not settings.targets:  # else the share in few models of those that they are for would be told of as large
            self.run.weighs(*mean_weights(found))

    def _distances(self) -> Floats:
        parts = [self.embeddings[c] for c in self.clients]
        error = np.array([part.trace / part.rows_embedded for part in parts])
        squares = squared_distances(np.array([part.mean for part in parts])) - error[:, None] - error[None, :]
        np.fill_diagonal(squares, 0.0)
        distances: Floats = np.sqrt(np.maximum(squares, 0.0))
        return distances

    async def hand_on(self) -> None:
        """Give every client what all have shared."""
        clients = self.clients
        embedded = [self.embeddings[c] for c in clients]
        size, outputs = (self.num_used, self.setup.num_outputs) if self.statistics else (0, 0)
        grams = np.zeros((len(clients), packed_size(size)))
        moments, squares = np.zeros((len(clients), size, outputs)), np.zeros(len(clients))
        for i, client in enumerate(clients):
            if client in self.statistics:
                part = self.statistics[client]
                grams[i], moments[i], squares[i] = part.gram, part.moment, part.square
        request = ShareRequest(
            clients=clients,
            num_rows=np.array([e.num_rows for e in embedded], dtype=np.float64),
            means=np.array([e.mean for e in embedded]),
            traces=np.array([e.trace for e in embedded]),
            grams=grams,
            moments=moments,
            squares=squares,
            withheld=self._withheld,
            clusterings=self._clustered(),
            directions=() if self.basis is None else (Directions(basis=self.basis),),
            num_embedded=tuple(e.rows_embedded for e in embedded) if any(e.num_embedded for e in embedded) else (),
        )
        await self.cohort.ask(request, everyone=True)

    def _clustered(self) -> tuple[Clustering, ...]:
        """Clusters of many clients, where all of them have shared."""
        if self.settings.weights != "crossfit" or self._withheld or not self.statistics:
            return ()
        scale = 1.0 if self.basis is None else self.basis.shape[1] / self.setup.num_features
        statistics = [self.statistics[c] for c in self.clients]
        return cluster_once(statistics, self.grid.clusters, int(self.setup.intercept), scale)

    @property
    def grid(self) -> CandidateGrid:
        """Candidates of cross-fitting."""
        named = {"full": FULL_GRID, "lite": LITE_GRID, "wide": WIDE_GRID}
        grid = named.get(self.settings.grid, default_grid(self.num_inputs))
        return replace(grid, num_folds=self.settings.folds)
