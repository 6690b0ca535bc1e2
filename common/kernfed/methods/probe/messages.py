"""A test of the line: the coordinator's own numbers, there and back. Nothing of the client's data is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Reply, Request, Rows, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(Reply):
    """The numbers that were sent, unchanged."""

    num_rows: Rows
    """Always 1: every client weighs the same."""
    values: Annotated[Array, Shape("N")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoRequest(Request[Echo]):
    """Send numbers back."""

    step = "probe.echo"
    reply = Echo

    values: Annotated[Array, Shape("N")]
