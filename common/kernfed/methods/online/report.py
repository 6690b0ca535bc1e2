"""The report's section on learning from streams: errors and regret per client, and what was sent against the budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernfed.report.charts import MAX_BARS, bar_chart
from kernfed.report.sections import Chart, Section, TableOf


def online_section(finding: Mapping[str, Any]) -> Section:
    """Make the section.

    Args:
        finding: As the workflow publishes it: facts of the method, `rows`, `bytes_up`, `bytes_down`, and `clients`,
            each with `rows`, `mse`, `regret`, `regret_bound` and `effective_kernels`.
    """
    clients: Mapping[str, Mapping[str, Any]] = finding["clients"]
    names = sorted(clients)
    charts = []
    if 0 < len(names) <= MAX_BARS and any(clients[n]["regret_bound"] is not None for n in names):
        title = "Regret of each client, and its bound"
        bars: dict[str, list[float | None]] = {
            "regret": [float(clients[n]["regret"]) for n in names],
            "at most": [_number(clients[n]["regret_bound"]) for n in names],
        }
        note = (
            "Total loss of the client's predictions less that of the best single kernel in hindsight, with targets in "
            "[0, 1]; and what theory says it is at most."
        )
        charts.append(Chart(title, bar_chart(title, "total loss", names, bars), note))
    rows = [
        [
            name,
            f"{clients[name]['rows']}",
            f"{float(clients[name]['mse']):.4g}",
            f"{float(clients[name]['regret']):.4g}",
            "-" if clients[name]["regret_bound"] is None else f"{float(clients[name]['regret_bound']):.4g}",
            f"{float(clients[name]['effective_kernels']):.1f}",
        ]
        for name in names
    ]
    columns = ["client", "rows", "mean squared error", "regret", "at most", "kernels in use"]
    return Section(
        title="Learning from streams",
        text=_words(finding),
        charts=charts,
        table=TableOf(columns, rows),
    )


def _words(finding: Mapping[str, Any]) -> str:
    sent = f"Per round a client sent {finding['bytes_up']:.0f} bytes of numbers and got {finding['bytes_down']:.0f}"
    parts = [f"{finding['rows']} rows were predicted, each before it was learned."]
    if "budget" in finding:
        used = 2 * finding["kernels_per_round"] * finding["num_frequencies"]
        parts.append(
            f"{finding['kernels_per_round']} of {finding['num_kernels']} kernels with {finding['num_frequencies']} "
            f"frequencies each are {used} parameters per round; the budget is {finding['budget']} "
            f"{finding['budget_unit']}."
        )
    parts.append(f"{sent}.")
    parts.append(
        "How each client weighs the kernels stays with it: weights.csv in its state folder, and the model that "
        "kernfed-client predict uses."
    )
    return " ".join(parts)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


SECTIONS = {"online": online_section}
