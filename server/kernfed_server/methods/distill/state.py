"""State of an iteration of distillation, from which a run goes on after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.settling import relative_movement
from kernfed.methods.distill.consensus import mean_predictions
from kernfed.methods.distill.finding import ClientDistance
from kernfed.methods.distill.growth import LEAP, diverges, rms, scale_of
from kernfed.methods.distill.messages import OwnModelKept
from kernfed_server.jobs.state import State, names_array

_UNKNOWN = -1.0
"""Stands for a distance that was never measured."""


@dataclass
class Iteration:
    """State of the iteration: all that a resumed run needs."""

    clients: tuple[str, ...]
    consensus: Floats | None
    """V, (N_p, C), before de-regularisation."""
    movements: list[float]
    """|V_t - V_t-1|/|V_t| of rounds 2, 3, ..."""
    targets: dict[int, Floats]
    """W of the rounds that a client may still be asked to fit."""
    trained: dict[str, int]
    """Round whose W each client is asked to fit when it is next asked; 0: own rows alone."""
    first: dict[str, float]
    """Of each client: root mean square difference between its first predictions and the consensus made of them."""
    last: dict[str, float]
    """The same of its latest predictions."""
    finished: bool = False
    steps: list[float] = field(default_factory=list)
    """Root mean squares of the consensus' movements in rounds 2, 3, ..."""
    opening: Floats | None = None
    """V of round 1, from which growth is measured."""
    scale: float = 0.0
    """By which movements are judged; see `kernfed.methods.distill.growth`."""
    steadiest: Floats | None = None
    """V before the least movement, as long as none was a leap."""
    far_rows: dict[str, float] = field(default_factory=dict)
    """Of each client: share of its rows without a public point near them."""
    answered: dict[str, int] = field(default_factory=dict)
    """Of each client: the last round in which its predictions counted."""
    remembered: dict[str, Floats] = field(default_factory=dict)
    """Of each client: those predictions, where the job keeps them."""
    begun: dict[str, Floats] = field(default_factory=dict)
    """Of each client: the first of its predictions that counted, with which a consensus begins anew."""
    out: set[str] = field(default_factory=set)
    """Clients whose predictions were too far off: they do not count any more."""

    @property
    def fitted(self) -> set[str]:
        """Clients whose next predictions are of a model that fitted a consensus."""
        return {client for client, last in self.trained.items() if last}

    @classmethod
    def start(cls, clients: tuple[str, ...]) -> Iteration:
        """Before round 1."""
        return cls(clients, None, [], {}, dict.fromkeys(clients, 0), {}, {})

    @classmethod
    def resume(cls, state: State, clients: tuple[str, ...]) -> Iteration:
        """After the last round that an earlier life of the run closed; clients that are new begin anew."""
        rounds, targets = state["target_rounds"].tolist(), state["targets"]
        names = state.names("clients")
        trained = dict(zip(names, state["trained"].tolist(), strict=True))
        first, last = (
            {c: float(d) for c, d in zip(names, state[key].tolist(), strict=True) if d >= 0}
            for key in ("first", "last")
        )
        return cls(
            clients=clients,
            consensus=np.array(state["consensus"], dtype=np.float64),
            movements=state["movements"].tolist(),
            targets={int(r): np.array(t, dtype=np.float64) for r, t in zip(rounds, targets, strict=True)},
            trained={client: int(trained.get(client, 0)) for client in clients},
            first=first,
            last=last,
            finished=state.flag("finished"),
            steps=state["steps"].tolist() if "steps" in state else [],
            opening=np.array(state["opening" if "opening" in state else "consensus"], dtype=np.float64),
            scale=state.number("scale") if "scale" in state else 0.0,
            steadiest=np.array(state["steadiest" if "steadiest" in state else "consensus"], dtype=np.float64),
            far_rows=dict(zip(names, state["far_rows"].tolist(), strict=True)) if "far_rows" in state else {},
            answered=_told(names, state, "answered"),
            remembered=_kept(state, "remembered"),
            begun=_kept(state, "begun"),
            out=set(state.names("out")) if "out" in state else set(),
        )

    def to_arrays(self) -> dict[str, Array]:
        """The arrays that `resume` reads."""
        assert self.consensus is not None  # noqa: S101  # a round was closed
        rounds = sorted(self.targets)
        stacked = [self.targets[r] for r in rounds]
        return {
            "consensus": self.consensus,
            "movements": np.array(self.movements, dtype=np.float64),
            "target_rounds": np.array(rounds, dtype=np.int64),
            "targets": np.stack(stacked) if stacked else np.empty((0, *self.consensus.shape)),
            "clients": names_array(self.clients),
            "trained": np.array([self.trained[c] for c in self.clients], dtype=np.int64),
            "first": np.array([self.first.get(c, _UNKNOWN) for c in self.clients]),
            "last": np.array([self.last.get(c, _UNKNOWN) for c in self.clients]),
            "finished": np.array([self.finished], dtype=np.int64),
            "steps": np.array(self.steps, dtype=np.float64),
            "opening": self._or_consensus(self.opening),
            "scale": np.array([self.scale]),
            "steadiest": self._or_consensus(self.steadiest),
            "far_rows": np.array([self.far_rows.get(c, 0.0) for c in self.clients]),
            "answered": np.array([self.answered.get(c, 0) for c in self.clients], dtype=np.int64),
            **self._stacked("remembered", self.remembered),
            **self._stacked("begun", self.begun),
            "out": names_array(sorted(self.out)),
        }

    def _stacked(self, name: str, kept: Mapping[str, Floats]) -> dict[str, Array]:
        """The arrays that `_kept` reads."""
        values = [kept[client] for client in sorted(kept)]
        stacked = np.stack(values) if values else np.empty((0, *self._made().shape))
        return {name: stacked, f"{name}_of": names_array(sorted(kept))}

    def leave_out(self, clients: Iterable[str], round_num: int) -> bool:
        """Let some clients count no more; whether the consensus begins anew, without what they told it.

        It does where there is one, and all others' first predictions are known, which a checkpoint of an earlier
        release has not.
        """
        new = set(clients) - self.out
        self.out |= new
        anew = bool(new and self.consensus is not None and self.begun.keys() - new)
        for client in new:
            for kept in (self.remembered, self.begun, self.first, self.last):
                kept.pop(client, None)
        if anew:
            self.consensus = self.opening = self.steadiest = None
            self.movements, self.steps, self.targets = [], [], {}
            self.trained = dict.fromkeys(self.clients, round_num)
            self.remembered = {client: self.begun.get(client, last) for client, last in self.remembered.items()}
            self.first, self.last = {}, {}
        return anew

    def mean_of(
        self, predictions: Mapping[str, Floats], round_num: int, clients: Iterable[str], *, keeps: bool
    ) -> Floats:
        """Mean of a round's predictions and, where the job keeps them, of the last ones of the other clients; (N_p, C).

        Where there are none, as none of those who answered counts, the consensus stays.

        Args:
            predictions: Those that count.
            round_num: The round.
            clients: Those that take part in the job, and were not left out of it.
            keeps: Whether the job keeps them.
        """
        self.answered.update(dict.fromkeys(predictions, round_num))
        for client in self.remembered.keys() - set(clients):
            del self.remembered[client]
        new = dict(predictions)
        if keeps:
            self.remembered |= new
            new = self.remembered
        return self._made() if not new else mean_predictions([new[client] for client in sorted(new)])

    def standing(self, round_num: int) -> dict[str, int]:
        """Clients whose last predictions stand for them in a round, each with the round that they are of."""
        return {c: self.answered[c] for c in sorted(self.remembered) if self.answered[c] < round_num}

    def distances(self, kept: Mapping[str, OwnModelKept]) -> tuple[ClientDistance, ...]:
        """Where each client stands to the consensus, and what it kept.

        Args:
            kept: Answers of those who kept a model.
        """
        return tuple(
            ClientDistance(
                c,
                self.first[c],
                self.last[c],
                self.far_rows.get(c, 0.0),
                c in kept and kept[c].alone,
                1.0 - kept[c].own_share if c in kept else 1.0,
                kept[c].gain if c in kept else 0.0,
                kept[c].gain_error if c in kept else 0.0,
                self.answered.get(c, 0),
            )
            for c in self.clients
            if c in self.last
        )

    def note_round(self, before: Floats | None, predictions: Mapping[str, Floats], deviation: Floats | None) -> None:
        """Note how far the consensus moved, and how far each client's predictions are from it.

        Args:
            before: The consensus of the round before; None: there was none.
            predictions: Those that count.
            deviation: Of all clients' targets, (C,), where it is known.
        """
        now = self._made()
        if before is None or self.opening is None:
            self.opening = self.steadiest = now
            self.scale = scale_of(now, list(predictions.values()), deviation)
        if before is not None:
            self.movements.append(relative_movement(before, now))
            self.steps.append(rms(now - before))
            if self.steps[-1] <= min(self.steps) and max(self.steps) <= LEAP * self.scale:
                self.steadiest = before
        for client, values in predictions.items():
            distance = rms(values - now)
            self.first.setdefault(client, distance)
            self.last[client] = distance

    @property
    def diverged(self) -> bool:
        """Whether the consensus moves away instead of settling."""
        now = self._made()
        return self.opening is not None and diverges(self.steps, rms(now - self.opening), self.scale)

    def _made(self) -> Floats:
        assert self.consensus is not None  # noqa: S101  # a round was closed
        return self.consensus

    def _or_consensus(self, values: Floats | None) -> Floats:
        return self._made() if values is None else values


def _told(names: tuple[str, ...], state: State, key: str) -> dict[str, int]:
    """Numbers of rounds by client, without those that are 0."""
    return {c: r for c, r in zip(names, state[key].tolist(), strict=True) if r} if key in state else {}


def _kept(state: State, name: str) -> dict[str, Floats]:
    """Predictions by client."""
    if name not in state:
        return {}
    kept = [np.array(part, dtype=np.float64) for part in state[name]]
    return dict(zip(state.names(f"{name}_of"), kept, strict=True))
