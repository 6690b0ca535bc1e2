"""The report's section on distillation: how the consensus moved, and how far each client's predictions are from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernfed.report.charts import MAX_BARS, Series, bar_chart, line_chart, suits_log
from kernfed.report.sections import Chart, Section, TableOf


def distillation_section(finding: Mapping[str, Any]) -> Section:
    """Make the section.

    Args:
        finding: As the workflow publishes it: `rounds`, `num_points`, `words`, `movements` (of rounds 2, 3, ...), and
            `clients`, each with `client`, `first` and `last`.
    """
    movements = [float(m) for m in finding["movements"]]
    clients = list(finding["clients"])
    charts = []
    if movements:
        title = "Movement of the consensus"
        rounds = tuple(range(2, len(movements) + 2))
        drawn = Series("training", rounds, tuple(movements))
        svg = line_chart(title, "relative to its size", [drawn], log=suits_log(movements))
        charts.append(Chart(title, svg, "How far the consensus moved in each round; a straight fall is convergence."))
    if 0 < len(clients) <= MAX_BARS:
        title = "Clients' predictions against the consensus"
        names = [str(c["client"]) for c in clients]
        bars = {"local": [float(c["first"]) for c in clients], "personal": [float(c["last"]) for c in clients]}
        note = "Root mean square difference over the public points: of the first predictions (local), and of the last."
        charts.append(Chart(title, bar_chart(title, "difference", names, bars), note))
    rows = [[str(c["client"]), f"{float(c['first']):.4g}", f"{float(c['last']):.4g}"] for c in clients]
    words = str(finding["words"])
    return Section(
        title="Consensus on the public points",
        text=(
            f"{finding['num_points']} public points, {finding['rounds']} rounds. {words[:1].upper()}{words[1:]}. The "
            "consensus itself is in consensus.csv; each client keeps its model, for kernfed-client predict."
        ),
        charts=charts,
        table=TableOf(["client", "first predictions, difference", "last predictions, difference"], rows),
    )


SECTIONS = {"distillation": distillation_section}
