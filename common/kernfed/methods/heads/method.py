"""The methods that train one global linear model, on ridge problems or as a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernfed.maths.tasks import TASKS
from kernfed.methods.base import Method, table
from kernfed.methods.heads.settings import (
    FedAvgSettings,
    FedNewSettings,
    FedProxSettings,
    FedSophiaSettings,
    NewtonSettings,
)

if TYPE_CHECKING:
    from kernfed.jobs.job_file import JobFile

Settings = NewtonSettings | FedAvgSettings | FedProxSettings | FedSophiaSettings | FedNewSettings


def _check(settings: Settings, job: JobFile) -> None:
    if settings.loss == "cross-entropy" and job.data is not None and not TASKS[job.data.task].has_classes:
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
