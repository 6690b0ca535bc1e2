"""Before round 1 of distillation: the clients' targets and the public points are held against each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import DataError
from kernfed.federation.cohort import Cohort
from kernfed.maths.apart import IMPLAUSIBLE, Moments, how_far
from kernfed.methods.distill.messages import TargetMoments, TargetMomentsRequest
from kernfed.methods.distill.scales import (
    ALARM,
    APART,
    LARGER,
    OwnTargets,
    implausible,
    larger_than_others,
    reach,
    standing_apart,
)
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.start.units import far_off

_BEYOND = f"predicts values more than {IMPLAUSIBLE:g} deviations off the clients' targets"
_APART = (
    f"predicts values more than {APART:g} times as far off as its own targets and the other clients' predictions make "
    "plausible"
)
_LARGER = f"predicts values more than {LARGER:g} times as large as any other client that fitted the same consensus"
_MANY = 1 << 20
"""Rows of whose number nothing is known."""


@dataclass(frozen=True)
class AgreedTargets:
    """Mean and deviation of all clients' targets, (C,); None where the clients' policies do not tell them."""

    mean: Floats | None = None
    deviation: Floats | None = None
    own: Mapping[str, OwnTargets] = field(default_factory=dict)
    """Of each client that tells."""

    @property
    def sent_mean(self) -> tuple[float, ...]:
        """The mean as it is sent; empty where it is not known."""
        return () if self.mean is None else tuple(self.mean.tolist())

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> AgreedTargets:
        """What `agree_targets` gave; earlier releases told nothing of each client, or no deviation."""
        own = {
            client: OwnTargets(*(np.array(part) for part in (mean, far, *(deviation or [far]))))
            for client, (mean, far, *deviation) in values.get("reaches", {}).items()
        }
        return cls(**{n: np.array(values[n]) for n in ("mean", "deviation") if n in values}, own=own)

    def far_off(
        self, predictions: Mapping[str, Floats], given: Floats | None, fitted: Collection[str]
    ) -> dict[str, str]:
        """Clients whose predictions are too far off to be any, with the reason.

        Where they are more than half of the clients, or half of them beyond all targets, nobody knows who is at fault.

        Args:
            predictions: By client, each (N_p, C).
            given: Consensus of the round before, (N_p, C); None: there is none.
            fitted: Clients that fitted a consensus.
        """
        if self.mean is None or self.deviation is None:
            return {}
        mean, deviation = self.mean, self.deviation
        beyond = [client for client, values in predictions.items() if implausible(values, mean, deviation)]
        among_all = OwnTargets(mean, reach(deviation, _MANY), deviation)
        own = {client: self.own.get(client, among_all) for client in predictions}
        found = dict.fromkeys(standing_apart(predictions, mean, own, given), _APART)
        after = {client: values for client, values in predictions.items() if client in fitted and client not in found}
        if larger := larger_than_others(after, mean, own):
            found[larger] = _LARGER
        found |= dict.fromkeys(beyond, _BEYOND) if 2 * len(beyond) < len(predictions) else {}
        return found if 2 * len(found) <= len(predictions) else {}


async def agree_targets(setup: Setup, cohort: Cohort, run: Run) -> dict[str, Any]:
    """Pool the clients' means and deviations, and find clients whose targets are of another scale.

    Those of at least half of the clients stand for all; with fewer there are none.

    Targets that spread `ALARM` times as much as the others', or lie so many of their deviations off, are noted. Clients
    whose targets are of another unit were left out before; one that states such here alone is left out now.

    Returns:
        The fields of `AgreedTargets`; none where they are not known.

    Raises:
        JobError: A client does not pass, and all have to.
    """
    otherwise = "scales of the clients' targets are not compared, and targets are not centred"
    asked = cohort.ask(TargetMomentsRequest(num_outputs=setup.num_outputs), optional=True)
    replies = await run.optional(asked, otherwise)
    missing = [client for client in cohort.clients if client not in replies]
    if 2 * len(missing) > len(cohort.clients) or not replies:
        if replies:
            run.note(f"{otherwise}: {listed(missing)} tell no mean and deviation")
        return {}
    if missing:
        run.note(f"{listed(missing)} tell no mean and deviation of their targets: those of the others stand for all")
    gate = Gate(cohort, run, strict=setup.strict)
    gate.leave_out(TargetMomentsRequest.step, len(replies), replies, far_off(setup.schema, _told(replies)))
    for client, factor in how_far(_told(replies)).items():
        if factor >= ALARM:
            run.note(
                f"{client}: its targets lie {factor:.3g} of the other clients' deviations off, or spread so much more; "
                "check that all clients have the same units"
            )
    taken = [(replies[c].num_rows, replies[c]) for c in cohort.clients if c in replies]
    total = sum(n for n, _ in taken)
    mean = sum(n / total * r.mean for n, r in taken)
    square = sum(n / total * (r.deviation**2 + (r.mean - mean) ** 2) for n, r in taken)
    reaches = {
        c: [part.tolist() for part in (r.mean, reach(r.deviation, r.num_rows), r.deviation)]
        for c, r in sorted(replies.items())
    }
    return {"mean": np.asarray(mean).tolist(), "deviation": np.sqrt(square).tolist(), "reaches": reaches}


def _told(replies: Mapping[str, TargetMoments]) -> dict[str, Moments]:
    return {client: (reply.mean, reply.deviation) for client, reply in replies.items()}


def check_points(public: Floats, mean: Floats, deviation: Floats, names: Sequence[str]) -> None:
    """Refuse public points that the clients' columns make impossible.

    Args:
        public: Points in the units of the data, (N_p, P).
        mean: Of the clients' columns, (P,); zeros where columns are not standardised, and nothing is checked then.
        deviation: Of them, (P,).
        names: Of the columns.

    Raises:
        DataError: Names point and column.
    """
    if not mean.any() and (deviation == 1.0).all():
        return
    with np.errstate(over="ignore"):
        far = np.abs(public - mean) / deviation > IMPLAUSIBLE
    if far.any():
        point, column = (int(i) for i in np.argwhere(far)[0])
        raise DataError(
            f"public set: point {point + 1} (counted from 1) has {public[point, column]:g} in column "
            f"{names[column]!r}, more than {IMPLAUSIBLE:g} deviations off the clients' rows; correct the file, or "
            "leave the point out"
        )
