"""What a sweep came to, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernfed.cli.output import print_note, print_table
from kernfed.jobs.sweeps.grid import Outcome, Run, as_json, number, shown, table


def print_sweep(
    name: str, outcomes: Sequence[Outcome], metric: str, rows: str, place: int | None, final: Run | None
) -> None:
    """Print the table of a sweep, and what the best combination reaches on test rows.

    Args:
        name: Of the job.
        outcomes: Of the combinations.
        metric: The one that ranks.
        rows: On which rows, in words.
        place: Of the best; None: none is told.
        final: The job as its file says, with the settings of the best; None: it did not run.
    """
    columns, lines = table(outcomes, metric, place)
    print_table(columns, lines, title=f"{name}: {metric} {rows}")
    if place is None and len(outcomes) == 1 and not outcomes[0].error:
        return  # there was nothing to choose
    if place is None or final is None:
        print_note(f"no combination is called the best: {_why_none(outcomes, metric)}")
        return
    reached = final.error or f"{metric} {number(final.scores.get(metric))}"
    print_note(
        f"best: {shown(outcomes[place].settings)}; with all training rows, on test rows, which had no say: {reached}"
    )


def print_outcome(outcome: Outcome, metric: str) -> None:
    """Say what one combination came to, as soon as it is known."""
    print_note(f"{shown(outcome.settings) or 'the job as it is'}: {outcome.error or number(outcome.of(metric))}")


def sweep_json(
    outcomes: Sequence[Outcome], metric: str, rows: str, place: int | None, final: Run | None
) -> dict[str, Any]:
    """JSON values of the same; arguments as of `print_sweep`."""
    chosen = None
    if place is not None and final is not None:
        settings = dict(outcomes[place].settings)
        chosen = {"settings": settings, "scores": dict(final.scores), "error": final.error}
    return {"metric": metric, "measured": rows, "trials": [as_json(o, metric) for o in outcomes], "chosen": chosen}


def _why_none(outcomes: Sequence[Outcome], metric: str) -> str:
    if all(outcome.error for outcome in outcomes):
        return "all failed"
    if all(outcome.of(metric) is None for outcome in outcomes):
        return "none was measured; clients keep too few rows apart, so give a larger --validation"
    return "these rows are the test rows"
