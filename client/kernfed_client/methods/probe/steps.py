"""The client's half of a test of the line."""

from __future__ import annotations

from typing import Any

from kernfed.methods.probe.messages import Echo, EchoRequest


def echo(_job: object, request: EchoRequest) -> Echo:
    """The same numbers; no data are touched."""
    return Echo(num_rows=1, values=request.values)


STEPS: dict[type[Any], Any] = {EchoRequest: echo}
"""Steps of this module, by the request that they answer."""
