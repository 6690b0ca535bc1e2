"""The methods that train one global linear model, on ridge problems or as a head."""

from __future__ import annotations

from typing import Any

from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.sums import MaskedRequest
from kernfed.methods.base import FIXED, Begins, Method, Reach, table
from kernfed.methods.heads.messages import (
    EvaluateHeadRequest,
    HeadDescentRequest,
    HeadDirectionRequest,
    HeadGradientRequest,
    HeadLossesRequest,
    HeadSophiaRequest,
    HeadStepRequest,
    HeadWarmUpRequest,
    OpenHeadRequest,
)
from kernfed.methods.heads.ridge_path import reach
from kernfed.methods.heads.settings import (
    FedAvgSettings,
    FedNewSettings,
    FedProxSettings,
    FedSophiaSettings,
    NewtonSettings,
)
from kernfed.methods.ridge.masked_messages import (
    MaskedDescentRequest,
    MaskedGradientRequest,
    MaskedProductRequest,
    MaskedProximalRequest,
    MaskedSolveRequest,
    MaskedStartRequest,
    MaskedStepRequest,
)
from kernfed.methods.ridge.messages import (
    NEWTON,
    CurvatureRequest,
    GradientDescentRequest,
    GradientRequest,
    HeldOutLossRequest,
    LocalSolveRequest,
    NewtonStartRequest,
    ProximalSolveRequest,
)
from kernfed.methods.shared_settings import seen_means, seen_ridge

Settings = NewtonSettings | FedAvgSettings | FedProxSettings | FedSophiaSettings | FedNewSettings


def _check(settings: Settings, task: LearningTask | None) -> None:
    if settings.loss == "cross-entropy" and task is LearningTask.REGRESSION:
        raise ValueError(
            'method.loss is "cross-entropy", which needs classes, but data.task is "regression"; use "squared"'
        )


def _begun(settings: Settings) -> dict[str, Reach]:
    if not isinstance(settings, NewtonSettings) or not settings.chooses_ridge or isinstance(settings.ridge, str | list):
        return {}
    return {"ridge": reach(settings.ridge, searched=settings.raise_ridge is True)}


def _seen(settings: Settings) -> str:
    """Why a job of rounds that are averaged can have no secure sums; empty: it can."""
    if isinstance(settings, NewtonSettings) and settings.differences:
        return "tells how each client differs from the others, by method.differences"
    if settings.loss != "ridge":
        return f'has secure sums with method.loss = "ridge" alone, and not with "{settings.loss}"'
    if getattr(settings, "client_fraction", 1.0) < 1:
        return (
            "draws other clients in each round, by method.client_fraction: sums that follow each other over changing "
            "clients tell what single ones add"
        )
    return seen_ridge(settings) if isinstance(settings, NewtonSettings) else seen_means(settings)


def _linear(
    settings: type[Settings],
    asks_ridge: type[Request[Any]],
    asks_head: type[Request[Any]],
    *more: type[Request[Any]],
    masked: tuple[type[MaskedRequest], ...] = (),
) -> Method[Settings]:
    """A method with what it asks of its ridge problem, and of a head, and its secure sums."""

    def asks(s: Settings) -> tuple[type[Request[Any]], ...]:
        return (asks_ridge,) if s.loss == "ridge" else (asks_head,)

    def seen(s: Settings) -> str:
        return _seen(s) if masked else "needs messages of single clients, which are not sums"

    steps = tuple(dict.fromkeys((OpenHeadRequest, EvaluateHeadRequest, asks_ridge, asks_head, *more, *masked)))
    return Method(
        settings,
        rounds=lambda s: s.rounds,
        check=_check,
        begins=Begins.MODEL,
        starts=("begin",) if "begin" in settings.model_fields else (),
        steps=steps,
        asks=asks,
        fixed=FIXED,
        begun=_begun,
        masked=lambda _: masked,
        seen=seen,
    )


_NEWTON_HEAD = (HeadStepRequest, HeadLossesRequest, HeadWarmUpRequest)
_AT_END = (GradientRequest, HeadGradientRequest)
"""Of the last weights, where the rounds ask none: how far the job is."""

_MASKED = (MaskedSolveRequest, MaskedGradientRequest)
"""Secure sums of rounds that are averaged: before the first, and behind the last."""

METHODS = table(
    _linear(
        NewtonSettings,
        NewtonStartRequest,
        HeadGradientRequest,
        *NEWTON,
        HeldOutLossRequest,
        *_NEWTON_HEAD,
        masked=(MaskedStartRequest, MaskedGradientRequest, MaskedStepRequest, MaskedProductRequest),
    ),
    _linear(
        FedAvgSettings,
        GradientDescentRequest,
        HeadDescentRequest,
        CurvatureRequest,
        LocalSolveRequest,
        *_AT_END,
        masked=(MaskedDescentRequest, *_MASKED),
    ),
    _linear(
        FedProxSettings,
        ProximalSolveRequest,
        HeadDescentRequest,
        LocalSolveRequest,
        *_AT_END,
        masked=(MaskedProximalRequest, *_MASKED),
    ),
    _linear(FedSophiaSettings, HeadSophiaRequest, HeadSophiaRequest, HeadGradientRequest),
    _linear(FedNewSettings, HeadDirectionRequest, HeadDirectionRequest, HeadGradientRequest),
)
