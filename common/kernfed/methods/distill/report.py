"""The report's section on distillation: how the consensus moved, and how far each client's predictions are from it."""

from __future__ import annotations

from kernfed.methods.distill.finding import ClientDistance, DistillationFinding
from kernfed.methods.finding import reading
from kernfed.report.charts import MAX_BARS, Series, bar_chart, line_chart, suits_log
from kernfed.report.parts import Chart, Section, TableOf


def distillation_section(finding: DistillationFinding) -> Section:
    """Make the section."""
    movements, clients = finding.movements, finding.clients
    charts = []
    if movements:
        title = "Movement of the consensus"
        rounds = tuple(range(2, len(movements) + 2))
        drawn = Series("training", rounds, movements)
        svg = line_chart(title, "relative to its size", [drawn], log=suits_log(list(movements)))
        charts.append(Chart(title, svg, "How far the consensus moved in each round; a straight fall is convergence."))
    if 0 < len(clients) <= MAX_BARS:
        title = "Clients' predictions against the consensus"
        names = [c.client for c in clients]
        bars = {"local": [c.first for c in clients], "personal": [c.last for c in clients]}
        note = "Root mean square difference over the public points: of the first predictions (local), and of the last."
        charts.append(Chart(title, bar_chart(title, "difference", names, bars), note))
    rows = [[c.client, f"{c.first:.4g}", last_words(c), f"{c.far_rows:.0%}", kept_words(c)] for c in clients]
    words = finding.words
    return Section(
        title="Consensus on the public points",
        text=(
            f"{finding.num_points} public points, {finding.rounds} rounds. {words[:1].upper()}{words[1:]}. The "
            "consensus itself is in consensus.csv; each client keeps its model, for kernfed-client predict."
        ),
        charts=charts,
        table=TableOf(
            [
                "client",
                "first predictions, difference",
                "last predictions, difference",
                "rows far from public points",
                "model kept",
            ],
            rows,
        ),
    )


def last_words(client: ClientDistance) -> str:
    """How far a client's last predictions were from the consensus, and of which round they are."""
    return f"{client.last:.4g} (round {client.answered})" if client.answered else f"{client.last:.4g}"


def kept_words(client: ClientDistance) -> str:
    """Which model a client kept."""
    if client.alone:
        return "own rows alone"
    kept = "distilled" if client.share == 1.0 else f"{client.share:.0%} distilled"
    return f"{kept}, {client.gain:.0%} ± {client.gain_error:.0%} less error" if client.gain_error > 0 else kept


SECTIONS = {DistillationFinding.name: reading(DistillationFinding, distillation_section)}
