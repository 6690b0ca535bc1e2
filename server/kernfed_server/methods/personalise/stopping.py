"""Early stopping of personal networks: each is that of the round in which it loses least on rows kept apart.

T networks of P parameters, B clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats, Integers
from kernfed.errors import QuorumNotMetError
from kernfed.methods.personalise.training_messages import WatchNetworksRequest
from kernfed_server.jobs.state import State
from kernfed_server.methods.personalise.network_batch import Networks

_BEST = "best/"
"""Beginning of the names of a checkpoint's arrays."""


@dataclass
class Best:
    """The best networks so far."""

    parameters: Floats
    """In the scale in which they are trained, shape (T, P)."""
    loss: Floats
    """Of the mixture's rows that are kept apart, shape (T,); infinite before the first round."""
    round_num: Integers
    """From which round they are; 0: of none yet. Shape (T,)."""
    told: Floats
    """What each client last told of each network, NaN of those whose losses do not count; shape (T, B)."""

    @classmethod
    def start(cls, networks: Networks) -> Best:
        """Nothing was watched yet."""
        count, clients = networks.targets.mix.shape
        nothing = np.zeros(count, dtype=np.int64)
        return cls(networks.parameters, np.full(count, np.inf), nothing, np.full((count, clients), np.nan))

    async def watch(self, networks: Networks, round_num: int) -> None:
        """Ask for the losses of this round's networks, and keep those that are better than any before.

        Losses of a network in two rounds are compared over the same clients: those that told of it when it was first
        told of. One that misses a round counts with what it told last.
        """
        job, mix = networks.job, networks.targets.mix
        members, on_rows = set(job.cohort.clients), networks.on_rows
        requests = {
            client: WatchNetworksRequest(
                network=networks.spec, networks=on_rows[mix[:, k] > 0], num_folds=job.settings.kept_apart
            )
            for k, client in enumerate(networks.clients)
            if client in members and (mix[:, k] > 0).any()
        }
        try:
            replies = await job.cohort.ask_each(requests)
        except QuorumNotMetError as err:
            job.run.note(f"losses on the rows that are kept apart are not known in round {round_num}: {err}")
            return
        first = np.isnan(self.told).sum(axis=1) == len(networks.clients)
        for k, client in enumerate(networks.clients):
            if client in replies and replies[client].watched:
                weighed = np.flatnonzero(mix[:, k] > 0)
                counted = first[weighed] | ~np.isnan(self.told[weighed, k])
                self.told[weighed[counted], k] = replies[client].losses[counted]
        losses = _of_mixtures(mix, self.told)
        better = losses < self.loss
        self.loss = np.where(better, losses, self.loss)
        self.round_num = np.where(better, round_num, self.round_num)
        self.parameters = np.where(better[:, None], networks.parameters, self.parameters)

    def take(self, networks: Networks) -> None:
        """Let the networks be the best ones, and tell of which rounds they are."""
        job, names, chosen = networks.job, networks.targets.names, self.round_num > 0
        networks.parameters = np.where(chosen[:, None], self.parameters, networks.parameters)
        job.stopped = {c: int(r) for c, r in zip(names, self.round_num, strict=False) if r}
        parts = f"one of {job.settings.kept_apart} parts of the rows"
        if without := [c for c in names if c not in job.stopped]:
            who = "no client" if not job.stopped else f"no client that {', '.join(without)} learns from"
            job.say(
                f"{who} kept {parts} apart and told of it: each part must hold policy.min_rows rows, and as many of "
                "each value that few rows have; these networks are those of the last round"
            )
        if job.stopped:
            rounds = sorted(job.stopped.values())
            job.say(
                f"{parts} were kept apart: by the losses on these, personal networks are of rounds {rounds[0]} to "
                f"{rounds[-1]} of {job.settings.rounds} (half of them up to {rounds[(len(rounds) - 1) // 2]})"
                + (f", that of all rows is of round {self.round_num[-1]}" if chosen[-1] else "")
            )

    def to_arrays(self) -> dict[str, Array]:
        """As arrays of a checkpoint; none where nothing is watched."""
        if not self.round_num.any():
            return {}
        return {f"{_BEST}{name}": getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_arrays(cls, state: State, networks: Networks) -> Best:
        """What `to_arrays` gave, or a start."""
        arrays = state.part(_BEST)
        if not arrays:
            return cls.start(networks)
        floats = {n: np.array(arrays[n], dtype=np.float64) for n in ("parameters", "loss", "told")}
        return cls(round_num=np.array(arrays["round_num"], dtype=np.int64), **floats)


def _of_mixtures(mix: Floats, told: Floats) -> Floats:
    """The loss of each network on its mixture, of the clients that told theirs; infinite where nobody did; (T,)."""
    known = np.where(np.isnan(told), 0.0, mix)
    sums = known.sum(axis=1)
    losses = (known * np.nan_to_num(told)).sum(axis=1)
    found: Floats = np.divide(losses, sums, out=np.full(len(mix), np.inf), where=sums > 0)
    return found
