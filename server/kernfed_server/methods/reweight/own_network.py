"""A module of the clients' own before round 1: all have the same parts, and start from the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import ConfigError, InvalidReplyError, JobError
from kernfed.federation.exchange import Fault
from kernfed.methods.reweight.own_network_messages import DescribeOwnNetworkRequest, OwnNetworkDescribed
from kernfed.models.network_spec import NetworkPart, NetworkSpec, own_network_spec, read_spec, spec_facts
from kernfed_server.jobs.state import json_array, json_of
from kernfed_server.methods.reweight.reweighting import Reweighting

_SPEC, _START = "own network", "own network start"
"""Names of what was agreed on."""
_ROUNDING = 1e-6
"""By which the first weights of two clients may differ, whose processors draw with other kernels."""


async def own_network(job: Reweighting) -> tuple[NetworkSpec, Floats]:
    """The network that the clients' files name, and its first parameters (Q,); found once in the life of the job.

    Raises:
        JobError: The clients' modules differ, and no more than half of them have the same one.
    """
    if (kept := job.run.agreed.get(_SPEC)) is not None and (start := job.run.agreed.get(_START)) is not None:
        return read_spec(json_of(kept)), np.array(start, np.float64)
    name, schema = job.settings.network.own_name, job.setup.schema
    shape = len(schema.features), job.setup.num_outputs
    request = DescribeOwnNetworkRequest(source=name, num_columns=shape[0], num_outputs=shape[1], task=schema.task)

    def check(client: str, reply: OwnNetworkDescribed) -> None:
        try:
            own_network_spec(name, schema.task, *shape, reply.parts)
        except ConfigError as err:
            raise InvalidReplyError(f"{client}: {err}") from err

    found = await job.gate.ask(request, check)
    first = found[_of_most(job, found, {client: (of.parts, of.fingerprint) for client, of in found.items()})]
    nearest = found[_of_most(job, found, _by_start(found))]
    spec = own_network_spec(name, schema.task, *shape, first.parts)
    start = np.array(nearest.start, np.float64)
    job.run.agreed.put(_SPEC, json_array(spec_facts(spec)))
    job.run.agreed.put(_START, start)
    return spec, start


def _of_most(job: Reweighting, found: dict[str, OwnNetworkDescribed], told: Mapping[str, Hashable]) -> str:
    """The first client of those that told the same as most did; the others leave the job, and `found`.

    Raises:
        JobError: They are no more than half.
    """
    ((most, num),) = Counter(told[c] for c in sorted(found)).most_common(1)
    first = next(c for c in sorted(found) if told[c] == most)
    others = [c for c in sorted(found) if told[c] != most]
    if others:
        words = _differ(job.settings.network.own_name, found, first, others[0])
        if 2 * num <= len(found):
            raise JobError(words)
        faults = {c: Fault(InvalidReplyError.reason, words) for c in others}
        job.gate.leave_out(DescribeOwnNetworkRequest.step, len(found), found, faults)
    return first


def _by_start(found: Mapping[str, OwnNetworkDescribed]) -> dict[str, str]:
    """Each client with the first one that starts where it does, up to rounding."""
    of: dict[str, str] = {}
    for client in sorted(found):
        start = found[client].start
        same = (c for c in dict.fromkeys(of.values()) if np.allclose(start, found[c].start, _ROUNDING, _ROUNDING))
        of[client] = next(same, client)
    return of


def _differ(name: str, found: Mapping[str, OwnNetworkDescribed], first: str, other: str) -> str:
    """Where the networks of two clients differ first, for people."""
    remedy = f"give every client file the same source, parameters and weights in [networks.{name}]"
    one, two = found[first], found[other]
    for i in range(max(len(one.parts), len(two.parts))):
        parts = [of.parts[i] if i < len(of.parts) else None for of in (one, two)]
        if parts[0] != parts[1]:
            return (
                f"the clients' networks {name!r} differ: parameter {i + 1} is {_told(parts[0])} at {first}, and "
                f"{_told(parts[1])} at {other}; {remedy}"
            )
    apart = np.abs(one.start - two.start)
    if not np.allclose(one.start, two.start, _ROUNDING, _ROUNDING):
        ends = np.cumsum([part.size for part in one.parts])
        place = int(np.searchsorted(ends, int(np.argmax(apart > _ROUNDING * (1 + np.abs(two.start)))), side="right"))
        part, end = one.parts[place], int(ends[place])
        return (
            f"the clients' networks {name!r} start from other numbers: parameter {part.name!r} differs by "
            f"up to {apart[end - part.size : end].max():.3g} between {first} and {other}; {remedy}, and the same "
            "release of torch where they are drawn"
        )
    return (
        f"the clients' networks {name!r} differ in what does not learn (frozen parameters, whole numbers, buffers that "
        f"are not saved) between {first} and {other}; {remedy}"
    )


def _told(part: NetworkPart | None) -> str:
    return "none" if part is None else f"{part.name!r} {list(part.shape)} ({part.role})"
