"""The methods on streams."""

from __future__ import annotations

from typing import Any

from kernfed.federation.messages.base import Request
from kernfed.methods.base import Begins, Method, Needs, table
from kernfed.methods.online.hindsight_messages import HindsightRequest
from kernfed.methods.online.messages import (
    DrawDictionaryRequest,
    LocalStepRequest,
    OnlineStepRequest,
    OpenStreamRequest,
    RangesRequest,
    SharedStepRequest,
    StreamMetricsRequest,
)
from kernfed.methods.online.meta_messages import MetaStepRequest
from kernfed.methods.online.pooled_messages import PooledStepRequest
from kernfed.methods.online.settings import (
    EmKoflSettings,
    OfmklAvgSettings,
    OfsklSettings,
    OnlineSettings,
    PerFedAvgSettings,
    StreamSettings,
    VmKoflSettings,
)

_NUMBERS = {name: name for name in ("batch_rows", "outlier_spans", "regularisation")}


_KERNELS = (DrawDictionaryRequest, HindsightRequest)


def _on_streams(settings: type[StreamSettings], *steps: type[Request[Any]]) -> Method[StreamSettings]:
    return Method(
        settings,
        rounds=lambda s: s.rounds,
        needs=lambda _: Needs.COLUMNS,
        begins=Begins.STATE,
        progress=("rounds", "metrics_every", "wait_s", "hindsight"),
        measured="of predictions made before learning",
        steps=(RangesRequest, OpenStreamRequest, StreamMetricsRequest, *steps),
        asks=lambda _: (OpenStreamRequest,),
        fixed=_NUMBERS,
        schema={"test_fraction": 0.0, "by_content": False, "by_record": False, "clipped": False},
        reads_stream=True,
    )


METHODS = table(
    _on_streams(OnlineSettings, *_KERNELS, OnlineStepRequest, PooledStepRequest),
    _on_streams(OfsklSettings, *_KERNELS, OnlineStepRequest),
    _on_streams(OfmklAvgSettings, *_KERNELS, OnlineStepRequest),
    _on_streams(VmKoflSettings, *_KERNELS, SharedStepRequest),
    _on_streams(EmKoflSettings, *_KERNELS, LocalStepRequest),
    _on_streams(PerFedAvgSettings, MetaStepRequest),
)
