"""Ranges of rows and targets from what clients state, without a client that no other one makes plausible.

One absurd number in one client's training rows would stretch the range for all: their targets would shrink to a point,
and the absurd rows of the stream would count as ordinary ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.errors import InvalidReplyError
from kernfed.methods.online.messages import Ranges
from kernfed_server.jobs.run import Run

MOST_APART = 100.0
"""A client's range that ends so many spans of the other clients' beyond theirs does not count."""

MOST_TOLD = 1.5
"""A client whose range alone makes that of all so many times as wide is named."""


def check_range(_client: str, ranges: Ranges) -> None:
    """Refuse a range whose ends are not in their order.

    Raises:
        InvalidReplyError: They are not.
    """
    if ranges.target_low > ranges.target_high:
        raise InvalidReplyError(f"states targets from {ranges.target_low:.6g} down to {ranges.target_high:.6g}")


def largest_norm(ranges: Mapping[str, Ranges], run: Run) -> float:
    """The largest norm of a training row of the clients whose norms count."""
    norms = {client: r.norm for client, r in ranges.items()}
    counted = dict(norms)
    for client, norm in norms.items():
        others = max((n for c, n in norms.items() if c != client), default=0.0)
        if others > 0.0 and norm > (1.0 + MOST_APART) * others:
            del counted[client]
            run.note(
                f"{client}: a training row of norm {norm:.4g}, where those of the others are at most {others:.4g}, "
                "does not count; look for a wrong unit or a code for missing values there, or give method.row_norm"
            )
    return max(counted.values())


def target_range(ranges: Mapping[str, Ranges], run: Run) -> tuple[float, float]:
    """Least and largest training target of the clients whose ranges count."""
    ends = {client: (r.target_low, r.target_high) for client, r in ranges.items()}
    counted = dict(ends)
    for client, (low, high) in ends.items():
        others = [end for c, end in ends.items() if c != client]
        if not others:
            continue
        least, most = min(end[0] for end in others), max(end[1] for end in others)
        margin = MOST_APART * (most - least)
        far = margin > 0.0 and not (least - margin <= low and high <= most + margin)
        if far and _overlap((low, high), (least, most)):
            del counted[client]
            run.note(
                f"{client}: training targets from {low:.4g} to {high:.4g}, where those of the others lie between "
                f"{least:.4g} and {most:.4g}, do not count; look for a wrong unit or a code for missing values there, "
                "or give method.target_range"
            )
    ends = counted or ends
    for client, (low, high) in sorted(counted.items()):
        others = [end for c, end in counted.items() if c != client]
        span = max((end[1] for end in others), default=0.0) - min((end[0] for end in others), default=0.0)
        whole = max(high, *(end[1] for end in others)) - min(low, *(end[0] for end in others)) if others else 0.0
        if span > 0.0 and whole > MOST_TOLD * span:
            run.note(
                f"{client}: training targets from {low:.4g} to {high:.4g} make the range that all targets are mapped "
                f"by {whole / span:.3g} times as wide as without it, and count; look at them, or give "
                "method.target_range"
            )
    return min(low for low, _ in ends.values()), max(high for _, high in ends.values())


def _overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether two ranges meet: clients apart as a whole differ in kind, and a faulty number does not tell that."""
    return a[0] <= b[1] and b[0] <= a[1]
