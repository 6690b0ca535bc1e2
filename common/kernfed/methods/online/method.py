"""The methods on streams."""

from __future__ import annotations

from kernfed.methods.base import Method, Needs, table
from kernfed.methods.online.settings import (
    EmKoflSettings,
    OfmklAvgSettings,
    OfsklSettings,
    OnlineSettings,
    PerFedAvgSettings,
    StreamSettings,
    VmKoflSettings,
)


def _on_streams(settings: type[StreamSettings]) -> Method[StreamSettings]:
    return Method(
        settings,
        rounds=lambda s: s.rounds,
        needs=lambda _: Needs.COLUMNS,
        measured="of predictions made before learning",
    )


METHODS = table(
    _on_streams(OnlineSettings),
    _on_streams(OfsklSettings),
    _on_streams(OfmklAvgSettings),
    _on_streams(VmKoflSettings),
    _on_streams(EmKoflSettings),
    _on_streams(PerFedAvgSettings),
)
