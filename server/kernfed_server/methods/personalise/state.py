"""Weights between the clients of a personalised job: state that its rounds share, and from which a run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.jobs.job_file import JobFile
from kernfed_server.jobs.state import State, names_array

SCALES = "scales"
"""In a checkpoint: rows were scaled as `data.scales` says. Those of releases before that key lack it."""


def adapted(job: JobFile, resumed: State | None) -> JobFile:
    """The job as its clients are prepared for it: a run that began under an earlier release keeps the scales of then.

    What its clients sent in the rounds before was of rows in these scales.
    """
    if resumed is None or SCALES in resumed or job.data is None:
        return job
    return job.model_copy(update={"data": job.data.model_copy(update={"scales": "moments"})})


@dataclass(frozen=True)
class Collaboration:
    """Weights of every client over all clients."""

    clients: tuple[str, ...]
    """Those that shared an embedding, sorted."""
    num_rows: Floats
    """Training rows of each, shape (B,)."""
    weights: Floats
    """Row t: the weights of client t, on the simplex; zeros where it has not told them. Shape (B, B)."""
    choices: tuple[str, ...]
    """The way in which each was found, in words."""
    fell_back: bool
    """Whether normal equations could not be had, so that weights and trainer are not those of the job file."""

    @property
    def told(self) -> tuple[str, ...]:
        """Clients whose weights are known."""
        return tuple(c for c, row in zip(self.clients, self.weights, strict=True) if row.any())

    def with_told(self, weights: Mapping[str, Array], choices: Mapping[str, str]) -> Collaboration:
        """The same with weights that clients have told."""
        known = np.zeros_like(self.weights)
        for i, client in enumerate(self.clients):
            if client in weights:
                known[i] = weights[client]
        words = tuple(choices.get(client, "") for client in self.clients)
        return Collaboration(self.clients, self.num_rows, known, words, self.fell_back)

    def to_arrays(self) -> dict[str, Array]:
        """As arrays, from which `from_arrays` goes on."""
        return {
            "clients": names_array(self.clients),
            "num_rows": self.num_rows,
            "collaboration": self.weights,
            "choices": names_array(self.choices),
            "fell_back": np.array([self.fell_back]),
            SCALES: np.array([True]),
        }

    @classmethod
    def from_arrays(cls, state: State) -> Collaboration:
        """Rebuild what `to_arrays` gave."""
        clients = state.names("clients")
        return cls(
            clients,
            np.array(state["num_rows"], dtype=np.float64),
            np.array(state["collaboration"], dtype=np.float64),
            state.names("choices")[: len(clients)],
            state.flag("fell_back"),
        )


@dataclass(frozen=True)
class Targets:
    """The models that are trained: one per client whose weights are known, and at last that of all rows alike."""

    names: tuple[str, ...]
    """Clients, in order; the model after them is the global one."""
    mix: Floats
    """Row i: weights over the collaboration's clients with which model i is trained. Shape (T, B)."""
    dropped: float
    """The largest weight that a target lost because its parts were below the threshold."""


def targets_of(found: Collaboration, min_weight: float) -> Targets:
    """Leave out weights below a threshold, scale the others up to sum to 1, and add the global model.

    Args:
        found: The weights.
        min_weight: The threshold; a client's largest weight always stays.
    """
    rows = []
    dropped = 0.0
    for row in found.weights[[found.clients.index(c) for c in found.told]]:
        kept = np.where(row >= min(min_weight, float(row.max())), row, 0.0)
        dropped = max(dropped, 1.0 - float(kept.sum() / row.sum()))
        rows.append(kept / kept.sum())
    rows.append(found.num_rows / found.num_rows.sum())
    return Targets(found.told, np.array(rows), dropped)


def weighted_sums(mix: Floats, parts: Mapping[int, Floats], shape: Sequence[int]) -> Floats:
    """Sum over clients, in their order, of weight times part, per target.

    Args:
        mix: Weights, shape (T, B).
        parts: Client's index to its parts for the targets that weigh it, shape (their number, ...), in order.
        shape: Of one part.
    """
    out = np.zeros((len(mix), *shape))
    for k in sorted(parts):
        for part, t in zip(parts[k], np.flatnonzero(mix[:, k] > 0), strict=True):
            out[t] += mix[t, k] * part
    return out


def without(mix: Floats, lost: Iterable[int]) -> Floats:
    """Weights without some clients, scaled to sum to 1 again; rows that had no other client become zeros."""
    left = mix.copy()
    left[:, list(lost)] = 0.0
    sums = left.sum(axis=1, keepdims=True)
    scaled: Floats = np.divide(left, sums, out=np.zeros_like(left), where=sums > 0)
    return scaled
