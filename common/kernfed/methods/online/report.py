"""The report's section on learning from streams: errors and regret per client, and what was sent against the budget."""

from __future__ import annotations

from kernfed.methods.finding import reading
from kernfed.methods.online.finding import OnlineFinding
from kernfed.report.charts import MAX_BARS, bar_chart
from kernfed.report.parts import Chart, Overview, Section, TableOf


def online_section(finding: OnlineFinding) -> Section:
    """Make the section."""
    clients = finding.clients
    names = sorted(clients)
    charts = []
    if 0 < len(names) <= MAX_BARS and any(clients[n].regret_bound is not None for n in names):
        title = "Regret of each client, and its bound"
        bars: dict[str, list[float | None]] = {
            "regret": [clients[n].regret for n in names],
            "at most": [clients[n].regret_bound for n in names],
        }
        note = (
            "Total loss of the client's predictions less that of the best single kernel in hindsight, with targets in "
            "[0, 1]; and what theory says it is at most."
        )
        charts.append(Chart(title, bar_chart(title, "total loss", names, bars), note))
    rows = [
        [
            name,
            f"{of.rows}",
            f"{of.mse:.4g}",
            f"{of.regret:.4g}",
            "-" if of.regret_bound is None else f"{of.regret_bound:.4g}",
            f"{of.effective_kernels:.1f}",
            *(["-" if of.hindsight_regret is None else f"{of.hindsight_regret:.4g}"] if finding.hindsight else []),
        ]
        for name, of in sorted(clients.items())
    ]
    columns = ["client", "rows", "mean squared error", "regret", "at most", "kernels in use"]
    columns += ["regret in hindsight"] if finding.hindsight else []
    return Section(
        title="Learning from streams",
        text=_words(finding),
        charts=charts,
        table=TableOf(columns, rows),
    )


def _words(finding: OnlineFinding) -> str:
    sent = f"Per round a client sent {finding.bytes_up:.0f} bytes of numbers and got {finding.bytes_down:.0f}"
    parts = [f"{finding.rows} rows were predicted, each before it was learned."]
    if finding.budget is not None and finding.kernels_per_round is not None and finding.num_frequencies is not None:
        used = 2 * finding.kernels_per_round * finding.num_frequencies
        parts.append(
            f"{finding.kernels_per_round} of {finding.num_kernels} kernels with {finding.num_frequencies} "
            f"frequencies each are {used} parameters per round; the budget is {finding.budget} "
            f"{finding.budget_unit}."
        )
    elif finding.share == "statistics":
        budget = f"; the budget is {finding.budget} {finding.budget_unit}" if finding.budget is not None else ""
        parts.append(
            f"The clients share statistics of their rows: {finding.num_kernels} kernels with "
            f"{finding.num_frequencies} frequencies each are ridges on the rows of all{budget}."
        )
    parts.append(f"{sent}.")
    parts += _draws(finding)
    parts += _hindsight(finding)
    parts.append(
        "How each client weighs the kernels stays with it: weights.csv in its state folder, and the model that "
        "kernfed-client predict uses."
    )
    return " ".join(parts)


def _draws(finding: OnlineFinding) -> list[str]:
    """What the coordinator knows of the draws."""
    if finding.exploration is None:
        return []
    if finding.exploration >= 1.0:
        return [
            "All kernels are drawn with one probability (exploration = 1), which the coordinator knows: it sees the "
            "gradients themselves."
        ]
    return [
        f"The coordinator does not know with which probability a client drew its kernels (exploration = "
        f"{finding.exploration:g}): it sees gradients up to an unknown factor."
    ]


def _hindsight(finding: OnlineFinding) -> list[str]:
    """The regret of the coordinator."""
    found = finding.hindsight
    if found is None:
        return []
    told = (
        f"The best function in hindsight, of the kernel with lengthscale {found.lengthscale:.4g}, has a total loss of "
        f"{found.loss:.4g} on {found.rows} rows; the regret against it is {found.regret:.4g} in all, "
        f"{found.regret / found.rows:.2g} a row"
    )
    return [told + ("." if found.bound is None else f", and at most {found.bound:.4g} by Theorem 2, in expectation.")]


def online_overview(finding: OnlineFinding) -> Overview:
    """Make the overview of the regret in hindsight; empty where it was not measured."""
    found, rows = finding.hindsight, []
    if found is not None:
        rows = [
            [name, f"{of.rows}", f"{of.hindsight_regret:.4g}"]
            for name, of in sorted(finding.clients.items())
            if of.hindsight_regret is not None
        ]
        rows.append(["all", f"{found.rows}", f"{found.regret:.4g}"])
    title = "regret against the best function in hindsight"
    return Overview(finding.name, finding.to_json(), title, TableOf(["client", "rows", "regret"], rows))


SECTIONS = {OnlineFinding.name: reading(OnlineFinding, online_section)}
OVERVIEWS = {OnlineFinding.name: reading(OnlineFinding, online_overview)}
