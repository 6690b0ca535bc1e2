"""The report's section on reweighting: weights of each client's rows, their worth, and each client's gain."""

from __future__ import annotations

from collections.abc import Sequence

from kernfed.methods.finding import reading
from kernfed.methods.reweight.finding import RatiosOfClient, ReweightFinding
from kernfed.methods.reweight.ratio_spec import HISTOGRAM_EDGES
from kernfed.metric_names import METRICS
from kernfed.report.charts import MAX_BARS, bar_chart, histograms
from kernfed.report.parts import Chart, Section, TableOf

_SCOPES = {
    "all": "the test points of all clients",
    "own": "each client's own test points",
    "target": "the test points of one client",
}
_SOURCES = {
    "matching": "by matching samples",
    "labels": "from the shares of the classes",
    "black-box": "from the shares of the classes, estimated without test labels",
}
_CLIENTS = {"equal": "alike", "rows": "by their rows", "effective": "by what their weighted rows are worth"}
_OTHERS = {
    "fedavg": "without weights (fedavg)",
    "own": "with own ratios",
    "weighted": "with weights (weighted)",
    "local": "alone (local)",
}


def reweight_section(finding: ReweightFinding) -> Section:
    """Make the section."""
    clients = finding.clients
    shown = clients[:MAX_BARS]
    names = [c.client for c in shown]
    charts = []
    if shown:
        title = "Weights of the training rows"
        svg = histograms(title, "weight, up to", names, [c.histogram for c in shown], edge_labels(), _bin_of_one())
        note = "Share of each client's training rows by weight; weights have mean 1 (dotted), 0 counts for nothing."
        charts.append(Chart(title, svg, note))
        title = "Effective sample size, of the training rows"
        shares = [c.effective_rows / max(c.num_rows, 1) for c in shown]
        charts.append(Chart(title, bar_chart(title, "share of the rows", names, {"global": shares})))
    of = {c.client for c in clients}  # a client's name is written as it is
    target = f" ({finding.target})" if finding.target else ""
    text = (
        f"Weights are for {_SCOPES.get(finding.scope, finding.scope)}{target}, found "
        f"{_SOURCES.get(finding.source, finding.source)}. "
        f"In means clients count {_CLIENTS.get(finding.client_weights, finding.client_weights)}. "
        + " ".join(f"{w}." if w.partition(":")[0] in of else f"{w[:1].upper()}{w[1:]}." for w in finding.words)
        + f" {worst_served(clients)}"
    )
    return Section("Test distributions and weights", text.strip(), charts, _table(clients))


def edge_labels() -> list[str]:
    """Upper edges of the histogram's bins, as text."""
    found = [f"1/{round(1 / edge)}" if 0 < edge < 1 else f"{edge:.0f}" for edge in HISTOGRAM_EDGES]
    return [*found, "more"]


def metric_of(clients: Sequence[RatiosOfClient]) -> str | None:
    """The metric that models are compared in: accuracy, or the mean squared error of numbers."""
    for metric in ("accuracy", "mse"):
        if any(metric in c.scores.get("global", {}) for c in clients):
            return metric
    return None


def gains(clients: Sequence[RatiosOfClient], other: str) -> dict[str, float]:
    """By how much each client's metric is better than with another model, where both were measured."""
    metric = metric_of(clients)
    if metric is None:
        return {}
    found = {}
    for c in clients:
        here, there = (c.scores.get(model, {}).get(metric) for model in ("global", other))
        if here is not None and there is not None:
            found[c.client] = here - there if metric == "accuracy" else there - here
    return found


def worst_served(clients: Sequence[RatiosOfClient]) -> str:
    """The worst client in words; empty where nothing was measured. Who gains and loses the job's end tells."""
    metric = metric_of(clients)
    if metric is None:
        return ""
    values = {c.client: c.scores["global"][metric] for c in clients if metric in c.scores.get("global", {})}
    worst = (min if metric == "accuracy" else max)(values, key=lambda c: values[c])
    return f"Worst served is {worst}: {METRICS[metric]} {values[worst]:.4g}."


def _bin_of_one() -> float:
    return HISTOGRAM_EDGES.index(1.0) + 0.5


def _table(clients: Sequence[RatiosOfClient]) -> TableOf:
    metric = metric_of(clients)
    columns = ["client", "rows", "worth", "greatest weight", "found on held-out rows", "cut", "uncovered", "shared"]
    others = [o for o in ("fedavg", "own", "weighted", "local") if metric and gains(clients, o)]
    if metric:
        columns += [METRICS[metric], *(f"better than {_OTHERS[o]} by" for o in others)]
    compared = any(c.condition for c in clients)
    columns += ["eigenvalues within Theorem 2", "greatest over the bound"] if compared else []
    found = {o: gains(clients, o) for o in others}
    rows = []
    for c in clients:
        cells = [
            c.client,
            str(c.num_rows),
            f"{c.effective_rows:.1f}",
            f"{c.greatest:.3g}",
            f"{100 * c.held_out:+.1f} %",
            str(c.num_cut),
            f"{100 * c.uncovered:.0f} %",
            c.shared,
        ]
        if metric:
            value = c.scores.get("global", {}).get(metric)
            cells.append("–" if value is None else f"{value:.4g}")
            cells += [f"{found[o][c.client]:+.4g}" if c.client in found[o] else "–" for o in others]
        if compared:
            of = c.condition
            cells += ["–", "–"] if of is None else [f"{of.within} of {of.directions}", f"{of.greatest:.3g}"]
        rows.append(cells)
    return TableOf(columns, rows)


SECTIONS = {ReweightFinding.name: reading(ReweightFinding, reweight_section)}
