"""The methods that train one global linear model, on ridge problems or as a head."""

from __future__ import annotations

from typing import Any

from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.base import Begins, Method, table
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
from kernfed.methods.heads.settings import (
    FedAvgSettings,
    FedNewSettings,
    FedProxSettings,
    FedSophiaSettings,
    NewtonSettings,
)
from kernfed.methods.ridge.messages import NEWTON, CurvatureRequest, GradientDescentRequest, ProximalSolveRequest

Settings = NewtonSettings | FedAvgSettings | FedProxSettings | FedSophiaSettings | FedNewSettings


def _check(settings: Settings, task: LearningTask | None) -> None:
    if settings.loss == "cross-entropy" and task is LearningTask.REGRESSION:
        raise ValueError(
            'method.loss is "cross-entropy", which needs classes, but data.task is "regression"; use "squared"'
        )


def _linear(settings: type[Settings], *steps: type[Request[Any]]) -> Method[Settings]:
    steps = (OpenHeadRequest, EvaluateHeadRequest, *steps)
    return Method(settings, rounds=lambda s: s.rounds, check=_check, begins=Begins.MODEL, steps=steps)


METHODS = table(
    _linear(NewtonSettings, *NEWTON, HeadGradientRequest, HeadStepRequest, HeadLossesRequest, HeadWarmUpRequest),
    _linear(FedAvgSettings, CurvatureRequest, GradientDescentRequest, HeadDescentRequest),
    _linear(FedProxSettings, ProximalSolveRequest, HeadDescentRequest),
    _linear(FedSophiaSettings, HeadSophiaRequest),
    _linear(FedNewSettings, HeadDirectionRequest),
)
