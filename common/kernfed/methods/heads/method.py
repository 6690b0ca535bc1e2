"""The methods that train one global linear model, on ridge problems or as a head."""

from __future__ import annotations

from kernfed.federation.messages.data import LearningTask
from kernfed.methods.base import Method, table
from kernfed.methods.heads.settings import (
    FedAvgSettings,
    FedNewSettings,
    FedProxSettings,
    FedSophiaSettings,
    NewtonSettings,
)

Settings = NewtonSettings | FedAvgSettings | FedProxSettings | FedSophiaSettings | FedNewSettings


def _check(settings: Settings, task: LearningTask | None) -> None:
    if settings.loss == "cross-entropy" and task is LearningTask.REGRESSION:
        raise ValueError(
            'method.loss is "cross-entropy", which needs classes, but data.task is "regression"; use "squared"'
        )


def _linear(settings: type[Settings]) -> Method[Settings]:
    return Method(settings, rounds=lambda s: s.rounds, check=_check)


METHODS = table(
    _linear(NewtonSettings),
    _linear(FedAvgSettings),
    _linear(FedProxSettings),
    _linear(FedSophiaSettings),
    _linear(FedNewSettings),
)
