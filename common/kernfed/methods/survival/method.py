"""The method `kaplan-meier`."""

from __future__ import annotations

from kernfed.federation.messages.data import LearningTask
from kernfed.methods.base import Method, Needs, table
from kernfed.methods.survival.messages import SurvivalTimesRequest
from kernfed.methods.survival.settings import KaplanMeierSettings


def _check(settings: KaplanMeierSettings, task: LearningTask | None) -> None:
    if task is not LearningTask.REGRESSION:
        raise ValueError(
            f'method {settings.name} takes the times from data.target, but data.task is "{task}"; set '
            'data.task = "regression"'
        )
    if settings.event and settings.event == settings.by:
        raise ValueError(f"method.event and method.by are both {settings.event!r}; name two columns, or remove a key")


METHODS = table(
    Method(
        KaplanMeierSettings,
        rounds=lambda _: 1,
        needs=lambda _: Needs.COLUMNS,
        lengthscale=lambda _: 1.0,
        check=_check,
        columns=lambda s: {"event": s.event, "by": s.by},
        steps=(SurvivalTimesRequest,),
        asks=lambda _: (SurvivalTimesRequest,),
        fixed={name: name for name in ("event", "by")},
        all_rows=True,
        leaves_model=False,
    )
)
