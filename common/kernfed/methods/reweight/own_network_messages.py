"""The step that asks of which parts a module of the clients' own is, before round 1. Q numbers in its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Exact, Kind, MaxLength, Name, Range, Reply, Request, Rows, Shape, Stated
from kernfed.federation.messages.data import LearningTask
from kernfed.models.network_spec import NetworkPart


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNetworkDescribed(Reply):
    """Parts of the module that a client's file names, and where its training starts."""

    models = ("start",)
    directions = ("start",)

    num_rows: Rows
    parts: Annotated[tuple[NetworkPart, ...], MaxLength(65536)]
    """In the order of their numbers."""
    start: Annotated[Array, Shape("Q"), Exact()]
    """Drawn by the job's seed, or those of a file of weights."""
    fingerprint: Name
    """Of what else the module holds and training leaves as it is."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        count = sum(part.size for part in self.parts)
        if count != len(self.start):
            yield f"the parts have {count} numbers, and {len(self.start)} came"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOwnNetworkRequest(Request[OwnNetworkDescribed]):
    """Make the module of one's own that the job names, and tell of its parts and its first weights."""

    step = "reweight.describe_network"
    reply = OwnNetworkDescribed
    kinds = (Kind.MODEL_UPDATE,)

    source: Annotated[str, MaxLength(63)]
    """How the client files call it."""
    num_columns: Annotated[int, Range(1, 1_000_000)]
    """Columns of a row."""
    num_outputs: Annotated[int, Range(1, 1_000_000)]
    """Outputs of the job."""
    task: LearningTask
    """Of the job."""
