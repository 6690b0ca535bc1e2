"""Settings of the test of the lines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernfed.methods.shared_settings import MAX_SHARE, NO_RIDGE_ALONE, ROW_QUORUM, Rounds
from kernfed.section import MethodSection, Unused


class ProbeSettings(MethodSection):
    """A test of the lines: numbers go to every client and back; no data are touched."""

    unused = (
        Unused("seed", "draws nothing"),
        Unused("evaluate_every", "measures every round"),
        NO_RIDGE_ALONE,
        Unused("data", "touches no data"),
        Unused("features", "touches no data"),
        Unused("cohort.dataset", "touches no data"),
        Unused(MAX_SHARE, "touches no data"),
        Unused(ROW_QUORUM, "touches no data"),
    )

    name: Literal["probe"]
    rounds: Rounds = 3
    payload_bytes: int = Field(1_000_000, ge=8, le=8 << 30, description="Bytes each way per client and round.")
