"""The method `probe`."""

from __future__ import annotations

from kernfed.methods.base import Method, Needs, table
from kernfed.methods.probe.messages import EchoRequest
from kernfed.methods.probe.settings import ProbeSettings

METHODS = table(
    Method(
        ProbeSettings,
        rounds=lambda s: s.rounds,
        needs=lambda _: Needs.NOTHING,
        steps=(EchoRequest,),
        leaves_model=False,
    )
)
