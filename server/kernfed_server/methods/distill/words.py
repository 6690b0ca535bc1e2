"""What a job of distillation says in words: whether it arrived, what its public set is good for, what clients kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.maths.settling import progress
from kernfed.methods.distill.messages import OwnModelKept
from kernfed.methods.distill.settings import DistillSettings
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival

_NEAR = 1e-3
"""Relative distance to the limit that counts as arrived, where the job asks for no smaller one."""


_NOBODY: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Ending:
    """How far the consensus came."""

    words: str
    arrived: bool | None = None
    """None: nobody can say."""
    distance: float | None = None
    """What is left of the way, relative to the consensus' size."""

    @property
    def arrival(self) -> Arrival:
        """For the end of the job."""
        words = self.words.removeprefix("arrived: ")
        return Arrival(words, self.arrived, self.distance, "estimate of the consensus' relative distance to its limit")


def ending(
    movements: Sequence[float],
    settings: DistillSettings,
    round_num: int,
    *,
    all_take_part: bool,
    absent: Mapping[str, int] = _NOBODY,
) -> Ending:
    """Judge the last round.

    Args:
        movements: Relative ones of rounds 2, 3, …
        settings: Of the job.
        round_num: The last round.
        all_take_part: Whether rounds have all clients.
        absent: Clients for which their last predictions stand, each with the round that these are of.
    """
    if not movements:
        return Ending("one round: every client has fitted the mean of the clients' own predictions once")
    found = progress(movements)
    moved = f"in round {round_num} the consensus moved by {found.movement:.2g} of its size"
    if not all_take_part:
        return Ending(f"{moved}; rounds have drawn clients, so this is no distance to the limit")
    if absent:
        of = listed([f"{client} (round {last})" for client, last in absent.items()])
        return Ending(f"{moved}; last predictions stand for clients that were away, {of}, and may yet move the limit")
    if found.movement == 0.0:
        return Ending(f"arrived: {moved}", True, 0.0)
    used = "" if round_num < settings.rounds else f"; all {settings.rounds} rounds are used up"
    if found.contraction is None or found.distance is None:
        words = f"still moving: {moved}, and movements do not shrink steadily; more rounds may change the models{used}"
        return Ending(words, False)
    rate = f"a round multiplies the distance by {found.contraction:.4f}, so about {found.distance:.2g} is left"
    if found.distance <= max(settings.tolerance, _NEAR):
        return Ending(f"arrived: {moved}; {rate}", True, found.distance)
    more = int(np.ceil(np.log(_NEAR / found.distance) / np.log(found.contraction)))
    words = f"still moving: {moved}; {rate}{used}, and some {more} more rounds would bring it to {_NEAR:g}"
    return Ending(words, False, found.distance)


def public_set_notes(num_points: int, num_rows: Mapping[str, int], far_rows: Mapping[str, float]) -> list[str]:
    """Where a public set is too small for the method's guarantees, or far from rows.

    Args:
        num_points: N_p.
        num_rows: Training rows by client.
        far_rows: Share of each client's rows that have no public point within a lengthscale.

    Source: distillation paper, Theorems 4.1 and 5.5, which want N_p at least (m - 1) N.
    """
    notes = []
    wanted = sum(num_rows.values()) - min(num_rows.values())
    if num_points < wanted:
        notes.append(
            f"few public points: {num_points}, and the method's guarantees ask for as many as the other clients have "
            f"rows, {wanted} here; more public points let clients tell each other more"
        )
    far = [f"{client} ({share:.0%})" for client, share in sorted(far_rows.items()) if share > 0.5]
    if far:
        notes.append(
            f"public points are far from the rows of {listed(far)}: so many rows have no public point within a "
            "lengthscale, and the consensus says little there; use public points that look like the clients' rows"
        )
    return notes


def kept_notes(kept: Mapping[str, OwnModelKept]) -> list[str]:
    """Which clients kept a model of their own rows alone, or a mean with it, and which could not compare."""
    notes = []
    alone = [client for client, reply in sorted(kept.items()) if reply.alone]
    if alone:
        notes.append(
            f"alone is better for {listed(alone)}: the model of own rows alone predicts rows that were kept apart "
            "better than the distilled one, or no row has a public point near it; it is what was kept and measured as "
            "personal"
        )
    mixed = [
        f"{client} ({1.0 - reply.own_share:.0%})"
        for client, reply in sorted(kept.items())
        if 0.0 < reply.own_share < 1.0
    ]
    if mixed:
        notes.append(
            f"shares of the distilled model in what is kept and measured as personal: {listed(mixed)}; the rest is the "
            "model of own rows alone, as rows that were kept apart ask for"
        )
    sure = {client: reply for client, reply in sorted(kept.items()) if reply.gain_error > 0}
    if sure:
        gains = [f"{client} ({reply.gain:.0%} ± {reply.gain_error:.0%})" for client, reply in sure.items()]
        doubtful = [client for client, reply in sure.items() if reply.gain <= reply.gain_error]
        chance = f"; at {listed(doubtful)} that may be chance, and own rows alone be better" if doubtful else ""
        notes.append(
            "on rows kept apart, what is kept has less squared error than own rows alone, with its standard error, at "
            f"{listed(gains)}{chance}. These rows have a part in the consensus, so gains are somewhat too large"
        )
    unknown = [client for client, reply in sorted(kept.items()) if not reply.compared]
    if unknown:
        notes.append(f"{listed(unknown)}: too few rows to compare, so the distilled model was kept")
    return notes
