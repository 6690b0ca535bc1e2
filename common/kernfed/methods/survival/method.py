"""The methods on times to an event."""

from __future__ import annotations

from kernfed.federation.messages.data import LearningTask
from kernfed.methods.base import Method, Needs, table
from kernfed.methods.survival.cox_messages import CoxEndRequest, CoxSumsRequest
from kernfed.methods.survival.messages import SurvivalTimesRequest
from kernfed.methods.survival.settings import CoxSettings, KaplanMeierSettings


def _check_times(settings: CoxSettings | KaplanMeierSettings, task: LearningTask | None) -> None:
    if task is not LearningTask.REGRESSION:
        raise ValueError(
            f'method {settings.name} takes the times from data.target, but data.task is "{task}"; set '
            'data.task = "regression"'
        )


def _check_curves(settings: KaplanMeierSettings, task: LearningTask | None) -> None:
    _check_times(settings, task)
    if settings.event and settings.event == settings.by:
        raise ValueError(f"method.event and method.by are both {settings.event!r}; name two columns, or remove a key")


METHODS = table(
    Method(
        KaplanMeierSettings,
        rounds=lambda _: 1,
        needs=lambda _: Needs.COLUMNS,
        lengthscale=lambda _: 1.0,
        check=_check_curves,
        columns=lambda s: {"event": s.event, "by": s.by},
        steps=(SurvivalTimesRequest,),
        asks=lambda _: (SurvivalTimesRequest,),
        fixed={name: name for name in ("event", "by")},
        all_rows=True,
        leaves_model=False,
    ),
    Method(
        CoxSettings,
        rounds=lambda s: s.rounds,
        needs=lambda _: Needs.COLUMNS,
        lengthscale=lambda _: 1.0,
        check=_check_times,
        columns=lambda s: {"event": s.event},
        steps=(CoxSumsRequest, CoxEndRequest),
        asks=lambda _: (CoxSumsRequest, CoxEndRequest),
        fixed={name: name for name in ("event", "ties", "baseline")},
        all_rows=True,
    ),
)
