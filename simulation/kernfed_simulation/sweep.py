"""`kernfed-simulate --sweep`: runs the jobs of a sweep one after the other, and leaves JSON and a plot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernfed import files
from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.sweeps.grid import Outcome, Run, Trial, delivered, shown
from kernfed_simulation.run import Simulated


def run_sweep(
    trials: Sequence[Trial],
    simulate: Callable[[JobFile], Simulated],
    metric: str,
    listen: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run every combination, one after the other; a run that fails is an outcome too.

    Args:
        trials: As `kernfed.jobs.sweeps.grid.trials` gives them.
        simulate: Runs a job on fresh clients.
        metric: The main metric, of the curve.
        listen: Told of each outcome.
    """
    outcomes = []
    for trial in trials:
        outcome = Outcome(trial.settings, tuple(run_once(job, simulate, metric) for job in trial.jobs))
        outcomes.append(outcome)
        listen(outcome)
    return outcomes


def run_once(job: JobFile, simulate: Callable[[JobFile], Simulated], metric: str) -> Run:
    """Run a job on fresh clients; arguments as of `run_sweep`."""
    started = time.perf_counter()
    done = simulate(job)
    model, scores = delivered(done.final)
    closed = {e.event.round_num: e.event for e in done.events if e.event.kind is EventKind.ROUND_CLOSED}
    curve = tuple(
        (number, event.metrics.pooled[model][metric])
        for number, event in sorted(closed.items())
        if event.metrics is not None and metric in event.metrics.pooled.get(model, {})
    )
    return Run(
        scores=scores,
        training=done.final.training,
        curve=curve,
        rounds=done.info.round_num,
        seconds=time.perf_counter() - started,
        error=done.error.reason if done.error else "",
    )


def write(folder: Path, told: Mapping[str, Any], outcomes: Sequence[Outcome], metric: str, rows: str) -> None:
    """Write `sweep.json` and `sweep.png`: final scores over the first key's values, and curves over rounds.

    Args:
        folder: Made where it is missing.
        told: JSON values of the sweep.
        outcomes: Of the combinations.
        metric: The main metric.
        rows: On which rows it was measured, in words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(told, indent=1) + "\n"
    files.replace(folder / "sweep.json", text.encode(), durable=False)  # the same command makes it again
    import matplotlib as mpl  # noqa: PLC0415  # only a sweep with --out draws

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415  # only a sweep with --out draws

    keys = list(outcomes[0].settings) or ["seeds"]
    lines: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        rest = {key: outcome.settings[key] for key in keys[1:]}
        lines.setdefault(shown(rest) or keys[0], []).append(outcome)
    names = list(dict.fromkeys(str(o.settings.get(keys[0], "")) for o in outcomes))
    figure, (final, course) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    figure.suptitle(f"{metric} {rows}")
    for i, (label, members) in enumerate(lines.items()):
        known = [(names.index(str(o.settings.get(keys[0], ""))), o) for o in members]
        scores = [o.of(metric) for _, o in known]
        final.errorbar(
            [x for x, _ in known],
            [float("nan") if score is None else score for score in scores],
            yerr=[o.error_of(metric) or 0.0 for _, o in known],
            marker="o",
            linestyle="none",
            capsize=3,
            label=label,
            color=f"C{i % 10}",
        )
        for x, o in known:
            if o.error:
                final.annotate(o.error.lower(), (x, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=8)
    for outcome in outcomes:
        if outcome.runs[-1].curve:
            course.plot(*zip(*outcome.runs[-1].curve, strict=True), lw=1.2, label=shown(outcome.settings) or "the job")
    final.set_xticks(range(len(names)), labels=names)
    final.set_xlabel(keys[0])
    final.set_ylabel(f"{metric}, mean and standard error" if len(outcomes[0].runs) > 1 else metric)
    course.set_xlabel("round")
    course.set_ylabel(metric)
    course.xaxis.get_major_locator().set_params(integer=True)
    if len(lines) > 1 and len(lines) <= 12:
        final.legend(fontsize=8)
    if len(outcomes) <= 12 and any(outcome.runs[-1].curve for outcome in outcomes):
        course.legend(fontsize=7)
    for axes in (final, course):
        axes.grid(alpha=0.3)
    figure.savefig(folder / "sweep.png", dpi=110)
    plt.close(figure)
