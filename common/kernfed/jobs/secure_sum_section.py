"""The table `[policy.secure_sum]` of a client file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from kernfed.section import Section


class SecureSumSection(Section):
    """What this site asks of secure sums, in which nobody sees its numbers, but a sum over several sites."""

    require: bool = Field(
        False,
        description="Whether what sums can be made of leaves as masked terms of secure sums alone: every kind of "
        "information but summary, mean_embedding and metric.",
    )
    min_peers: int = Field(
        0,
        ge=0,
        le=1000,
        description="Fewest other sites of a secure sum whose keys this one accepted; 0: it believes the federation's "
        "CA, whose holder can make sites of any name.",
    )
    peers: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]] = Field(
        {},
        description="Sites whose keys were compared by another way than this federation, each with the fingerprint "
        "that `kernfed-client peers` prints there; beside those that `kernfed-client peers --accept` keeps.",
    )
