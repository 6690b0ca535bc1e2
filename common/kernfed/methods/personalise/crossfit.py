"""Collaboration weights by cross-fitting: embeddings and losses propose whom to learn from, held-out rows decide.

A target's candidates are ridge models on mixtures of everyone's normal equations. Where the mixture leans is proposed
by distances between embeddings and by how well a first model predicts at each client; how far it leans, how sharply the
proposal decays and how large the ridge is are chosen by held-out squared errors on the target's own rows. Few rows
choose badly, so that choice is made once for all clients, from sums over them; a client deviates from it only to the
best of another family, and only where its own rows show it clearly.

Nothing of one client's rows is needed at another: `Shared` is sums over rows, sent once; held-out errors need the
target's own rows alone, for all that depends on the target (its sums and its embedding) is computed anew without them.

B clients, p inputs (an intercept may be the first), C outputs, M embedding features, J candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats, Integers
from kernfed.errors import DataError
from kernfed.maths.folds import deal, variance_of_means
from kernfed.maths.triangles import pack, unpack
from kernfed.methods.personalise.choice import Candidate, Family, Scores, candidates, fedavg_candidates
from kernfed.methods.personalise.clusters import RIDGE, Clusters, client_losses, cluster, forms_of
from kernfed.methods.personalise.crossfit_messages import CandidateGrid, StageDecision
from kernfed.methods.personalise.embeddings import embed
from kernfed.methods.personalise.mixing.mixtures import Equations, solve_mixtures
from kernfed.methods.personalise.mixing.shared import Shared

MIN_ROWS = 3
"""Different training rows from which a client scores candidates on held-out ones; with fewer it takes the common
choice."""

_TINY = 1e-300
_MIXED = 1 << 22
"""Numbers of normal equations (32 MiB) that are mixed at once."""
_Leaning = tuple[Family, float]
"""Family and width of candidates that lean alike."""
_Source = tuple[Floats, float]
"""A candidate's model of each part, shape (parts, p, C), and its held-out loss."""
_CLUSTER_WIDTH = 0.25
"""h of clusters: decay of their weight, in units of the best cluster's loss on the target's rows."""


@dataclass(frozen=True, slots=True)
class Personal:
    """A target's choice and what follows from it on all of its rows."""

    index: int
    candidate: Candidate
    weights: Floats
    """Collaboration weights w, shape (B,), on the simplex."""
    coefficients: Floats
    """Of the ridge model on the mixture, shape (p, C)."""
    held_out_loss: float


@dataclass(frozen=True, slots=True)
class _Part:
    """A target's sums over some of its rows, and the rows left out."""

    num_rows: int
    mean: Floats
    noise: float
    """Expected squared error of the mean."""
    gram: Floats
    moment: Floats
    square: float
    held: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Block:
    """Candidates that one stage added."""

    errors: Floats
    """Held-out, shape (J', n)."""
    models: Floats
    """Per part but the last, which is of all rows: few candidates need that model; shape (J', parts - 1, p, C)."""
    listed: Sequence[Candidate]
    """The candidates, J' of them."""
    leanings: Mapping[_Leaning, Floats]
    """Direction v from all rows, shape (B,), by how a candidate leans: few directions for many candidates."""
    mixed: Mapping[_Leaning, tuple[Floats, Floats]]
    """Normal equations in that direction, shapes (p (p + 1)/2,) and (p, C)."""


def needed_errors(num_rows: int) -> float:
    """By how many standard errors a client's own rows must speak against the common choice: 2 up to 20, then fewer.

    Of few rows the standard error itself is little known, and often too small; of many rows one is enough.
    """
    return 1.0 + min(1.0, 20.0 / num_rows)


@dataclass
class Target:
    """One client that cross-fits on its own rows.

    Attributes:
        index: Its place among the clients of `shared`.
        shared: Everyone's sums.
        grid: The candidates.
    """

    index: int
    shared: Shared
    x: Floats
    """Inputs, shape (n, p)."""
    y: Floats
    """Targets, shape (n, C)."""
    phi: Floats
    """Embedding features, shape (n, M)."""
    grid: CandidateGrid
    penalised: Floats
    """1 per input that the ridge counts, 0 for an intercept; shape (p,)."""
    ridge_scale: float = 1.0
    """Inputs over the features whose leading directions they are: ridges are relative to the mean over features."""
    unit: Integers | None = None
    """Number of each row's content, shape (n,); rows of one number lie in one fold. None: no row has a copy."""
    beside: Floats | None = None
    """Embedding features of unlabelled rows, which the client's embedding is of too, shape (m, M); None: of none."""
    _parts: list[_Part] = field(default_factory=list, init=False)
    _blocks: list[_Block] = field(default_factory=list, init=False)
    """Candidates that each stage added."""
    _clusters: dict[int, tuple[Clusters, Floats]] = field(default_factory=dict, init=False)
    """Of the other clients, by the number of clusters; with the models' forms."""

    def __post_init__(self) -> None:
        n = len(self.x)
        if self._num_units == n:  # asked for often, and dearer with numbers
            self.unit = None
        if not self.is_small:
            num_folds = min(self._num_units, self.grid.num_folds or (5 if n >= 20 else 10))
            rows = np.arange(n)
            fold = deal(rows, rows if self.unit is None else self.unit, num_folds)
            self._parts = [self._part(np.flatnonzero(fold == i)) for i in range(num_folds)]
        self._parts.append(self._part(np.empty(0, dtype=np.intp)))

    @property
    def is_small(self) -> bool:
        """Whether there are too few rows to hold some out: the common choice is taken, and nothing is scored."""
        return self._num_units < MIN_ROWS

    @property
    def _num_units(self) -> int:
        """Rows of different content."""
        return len(self.x) if self.unit is None else len(np.unique(self.unit))

    def errors(self, decisions: Sequence[StageDecision]) -> Floats:
        """Compute held-out squared errors of all candidates of the stage after these decisions, shape (J, n).

        Args:
            decisions: Of the stages before, in order.
        """
        return np.concatenate([block.errors for block in self._of_stage(decisions)])

    def scores(self, decisions: Sequence[StageDecision]) -> Scores:
        """Sum up what this client says about the candidates of the stage after these decisions.

        Raises:
            DataError: It has too few rows to say anything.
        """
        if self.is_small:
            raise DataError(
                f"cross-fitting needs at least {MIN_ROWS} different training rows, there are {self._num_units}; add "
                "rows"
            )
        errors = self.errors(decisions)
        losses = errors.mean(axis=1)
        fedavg = fedavg_candidates(candidates(self.grid, 0))
        differences = losses[:, None] - losses[fedavg]
        variances = np.stack([variance_of_means(errors - errors[b], self.unit) for b in fedavg], axis=1)
        return Scores(losses, np.square(differences), variances)

    def choose(self, decisions: Sequence[StageDecision]) -> int:
        """Follow the last decision, or deviate where this client's rows show it by `needed_errors` standard errors."""
        *before, last = decisions
        if self.is_small:
            return last.pooled
        errors = self.errors(before)
        chosen, least = last.pooled, 0.0
        for j in last.alternatives:
            gain = errors[j] - errors[last.pooled]
            error = math.sqrt(variance_of_means(gain[None], self.unit)[0])
            bound = float(gain.mean()) + needed_errors(self._num_units) * error
            if bound < least:
                chosen, least = j, bound
        return chosen

    def adopt(self, decisions: Sequence[StageDecision]) -> Personal:
        """Give the model and the weights of the choice after the last stage, from all rows."""
        stage = len(decisions) - 1
        index = self.choose(decisions)
        blocks = self._of_stage(decisions[:stage])
        listed = candidates(self.grid, stage)
        leaning = next(b.leanings[key] for b in reversed(blocks) if (key := _leaning(listed[index])) in b.leanings)
        model = self._models(blocks, index)[-1]
        loss = decisions[-1].loss if self.is_small else float(self.errors(decisions[:stage])[index].mean())
        return Personal(index, listed[index], self._weights(leaning, listed[index]), model, loss)

    def _of_stage(self, decisions: Sequence[StageDecision]) -> list[_Block]:
        """Blocks that make up the candidates of the stage after these decisions; made where they are not yet."""
        stage = len(decisions)
        while len(self._blocks) <= stage:
            self._blocks.append(self._block(decisions[: len(self._blocks)]))
        return self._blocks[: min(stage, 1) + 1] + ([self._blocks[stage]] if stage >= 2 else [])

    def _part(self, held: npt.NDArray[np.intp]) -> _Part:
        kept = np.delete(np.arange(len(self.x)), held)
        own = embed(self.phi[kept] if self.beside is None else np.vstack([self.phi[kept], self.beside]))
        x, y = self.x[kept], self.y[kept]
        square = float(np.square(y).sum()) / len(y)
        return _Part(len(kept), own.mean, own.error, x.T @ x / len(x), x.T @ y / len(x), square, held)

    def _block(self, decisions: Sequence[StageDecision]) -> _Block:
        """Compute the candidates that the stage after these decisions adds, or computes anew."""
        stage = len(decisions)
        listed = candidates(self.grid, stage)
        new = listed[sum(len(block.errors) for block in self._blocks[: min(stage, 2)]) :]
        sources = self._sources(decisions)
        n, (p, c) = len(self.x), (self.x.shape[1], self.y.shape[1])
        errors = np.empty((len(new), n))
        models = np.empty((len(new), len(self._parts) - 1, p, c))
        leanings: dict[_Leaning, Floats] = {}
        whole: dict[_Leaning, tuple[Floats, Floats]] = {}
        losses = self._losses(sources)
        for group in self._groups(new):
            leaned = [self._directions(*key, sources, losses) for key in group]
            # Of all parts and several families at once: what others shared is much, and is read once.
            stacked = np.concatenate(leaned)
            grams, moments = stacked @ self.shared.grams, np.tensordot(stacked, self.shared.moments, 1)
            start = 0
            for key, directions in zip(group, leaned, strict=True):
                places = [j for j, candidate in enumerate(new) if _leaning(candidate) == key]
                alike = [new[j] for j in places]
                leans = self._leans(directions, self._parts, alike)
                mine = slice(start, start := start + len(directions))
                equations = list(zip(unpack(grams[mine], p), moments[mine], strict=True))
                for i, part in enumerate(self._parts[:-1]):
                    models[places, i] = self._solve(part, leans[i], equations[min(i, len(equations) - 1)], alike)
                leanings[key] = directions[-1].copy()
                whole[key] = grams[mine][-1].copy(), moments[mine][-1].copy()
        for i, part in enumerate(self._parts):
            if part.held.size:
                predicted = np.tensordot(models[:, i], self.x[part.held], axes=(1, 1)).transpose(0, 2, 1)
                errors[:, part.held] = np.square(self.y[part.held] - predicted).sum(axis=2)
        return _Block(errors, models, new, leanings, whole)

    def _sources(self, decisions: Sequence[StageDecision]) -> dict[Family, _Source]:
        """The model of each part, and the held-out loss, from which each family of loss proposals starts."""
        origins: dict[Family, int] = {}
        if decisions:
            # A model of one or two rows alone says nothing of who is like them.
            origins[Family.LOSS_LOCAL] = decisions[0].pooled if self.is_small else decisions[0].local
            origins[Family.LOSS_CHOICE] = self.choose(decisions[:1])
        if len(decisions) > 1:
            origins[Family.LOSS_AGAIN] = self.choose(decisions)
        if not origins:
            return {}
        blocks = self._of_stage(decisions[:-1])
        models = {family: self._models(blocks, j) for family, j in origins.items()}
        if self.is_small:
            known = {family: decisions[-1 if family is Family.LOSS_AGAIN else 0].loss for family in origins}
            return {family: (models[family], known[family]) for family in origins}
        errors = np.concatenate([block.errors for block in blocks])
        return {family: (models[family], float(errors[j].mean())) for family, j in origins.items()}

    def _models(self, blocks: Sequence[_Block], index: int) -> Floats:
        """A candidate's model of each part, the last of all rows, shape (parts, p, C)."""
        block, place = [(block, j) for block in blocks for j in range(len(block.listed))][index]
        key = _leaning(block.listed[place])
        alike, (gram, moment) = [block.listed[place]], block.mixed[key]
        leans = self._leans(block.leanings[key][None], self._parts[-1:], alike)[0]
        whole = self._solve(self._parts[-1], leans, (unpack(gram, len(moment)), moment), alike)
        return np.concatenate([block.models[place], whole])

    def _losses(self, sources: Mapping[Family, _Source]) -> dict[Family, Floats]:
        """Losses at every client of the models from which families of loss proposals start, shape (parts, B) each."""
        if not sources:
            return {}
        s, models = self.shared, np.concatenate([models for models, _ in sources.values()])
        found = client_losses(s.grams, s.moments, s.squares, models)
        return dict(zip(sources, np.split(found, len(sources)), strict=True))

    def _directions(
        self, family: Family, width: float, sources: Mapping[Family, _Source], losses: Mapping[Family, Floats]
    ) -> Floats:
        """Weights v on the other clients for each part, shape (parts, B), or (1, B) where all parts lean alike.

        A row sums to 1, or is 0 where there is nobody to lean on.
        """
        s, parts = self.shared, self._parts
        if family is Family.LOCAL:
            return np.zeros((1, len(s.num_rows)))
        if family is Family.POOLED:
            decays = np.zeros((1, len(s.num_rows)))
        elif family is Family.EMBEDDING:
            decays = self._embedding_decays(width)
        elif family is Family.CLUSTER:
            decays = np.array([self._cluster_decay(int(width), part) for part in parts])
        else:
            reference = max(sources[family][1], 1e-12 * float(s.squares[self.index]), _TINY)
            decays = np.maximum(losses[family] - reference, 0.0) / (width * reference)
        decays[:, self.index] = math.inf
        directions = np.zeros_like(decays)
        for direction, decay in zip(directions, decays, strict=True):
            least = decay.min()
            if math.isfinite(least):
                v = s.num_rows * np.exp(least - decay)
                direction[:] = v / v.sum()
        return directions

    def _embedding_decays(self, width: float) -> Floats:
        """Squared distance of each client's embedding from each part's, less its noise, shape (parts, B)."""
        s = self.shared
        means = np.array([part.mean for part in self._parts])
        own_noise = np.array([part.noise for part in self._parts])
        noise = np.maximum(own_noise[:, None] + s.noise, _TINY)
        # Around this client's mean, so that little cancels, and without an array of the size of all means.
        centre = means[-1]
        spread = s.mean_squares - 2.0 * (s.means @ centre) + centre @ centre
        offsets = means - centre
        distance = (
            spread - 2.0 * (offsets @ s.means.T - (offsets @ centre)[:, None]) + np.square(offsets).sum(1)[:, None]
        )
        decay: Floats = np.maximum(distance - noise, 0.0) / (width * noise / 2.0)
        return decay

    def _cluster_decay(self, num_clusters: int, part: _Part) -> Floats:
        """Loss on a part of the model of each client's cluster, less that of the best cluster, shape (B,)."""
        s = self.shared
        others = np.delete(np.arange(len(s.num_rows)), self.index)
        decay = np.full(len(s.num_rows), math.inf)
        if not others.size:
            return decay
        if num_clusters not in self._clusters:
            made = self._clustered(num_clusters, others)
            self._clusters[num_clusters] = made, forms_of(made.models)
        found, forms = self._clusters[num_clusters]
        gram, moment, square = pack(part.gram)[None], part.moment[None], np.array([part.square])
        losses = client_losses(gram, moment, square, found.models, forms)[:, 0][found.labels]
        best = max(float(losses.min()), 1e-12 * part.square, _TINY)
        decay[others] = np.maximum(losses - best, 0.0) / (_CLUSTER_WIDTH * best)
        return decay

    def _clustered(self, num_clusters: int, others: npt.NDArray[np.intp]) -> Clusters:
        """The others' clusters and their models, of which this client's rows are no part."""
        s, ridge = self.shared, RIDGE * self.ridge_scale
        if num_clusters in s.labels:
            models = s.cluster_sums(num_clusters).models_without(self.index, self.penalised, ridge)
            return Clusters(s.labels[num_clusters][others], models)
        sums = (s.num_rows[others], s.grams[others], s.moments[others], s.squares[others])
        return cluster(*sums, self.penalised, num_clusters, ridge)

    def _leans(self, directions: Floats, parts: Sequence[_Part], alike: Sequence[Candidate]) -> Floats:
        """λ = u N/(N + n_t) with N = 1/Σ v_k²/n_k, the rows that a direction is worth; shape (parts, J)."""
        rows = np.array([part.num_rows for part in parts])
        spread = (np.square(directions) / self.shared.num_rows).sum(axis=1)
        shares = np.array([c.share for c in alike])
        leans: Floats = np.where(spread > 0, shares[:, None] / (1.0 + rows * spread), 0.0).T
        return leans

    def _weights(self, direction: Floats, candidate: Candidate) -> Floats:
        """Collaboration weights w = (1 - λ) e_t + λ v from all rows, shape (B,)."""
        lean = float(self._leans(direction[None], self._parts[-1:], [candidate])[0, 0])
        weights = lean * direction
        weights[self.index] = 1.0 - lean
        return weights

    def _groups(self, new: Sequence[Candidate]) -> list[list[_Leaning]]:
        """The ways to lean of candidates, as many together as may be mixed at once."""
        keys = list(dict.fromkeys(_leaning(c) for c in new))
        size = max(1, _MIXED // (len(self._parts) * self.shared.grams.shape[1]))
        return [keys[i : i + size] for i in range(0, len(keys), size)]

    def _solve(self, part: _Part, leans: Floats, mixed: Equations, alike: Sequence[Candidate]) -> Floats:
        """Ridge models of candidates that lean in one direction, whose normal equations are mixed, (J, p, C)."""
        ridges = np.array([c.ridge for c in alike])
        return solve_mixtures((part.gram, part.moment), mixed, leans, ridges, self.penalised, self.ridge_scale)


def _leaning(candidate: Candidate) -> _Leaning:
    """All rows alike is where part of the way towards all others ends."""
    return Family.POOLED if candidate.family is Family.FEDAVG else candidate.family, candidate.width
