"""The report's section on personalisation: weights and distances between clients, and each client's gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.metrics import METRICS
from kernfed.report.charts import MAX_BARS, heat_map
from kernfed.report.sections import Chart, Overview, Section, TableOf

_WEIGHTS = {
    "crossfit": "proposed by embeddings, clusters and losses, decided by cross-fitting",
    "paper": "by Q-aggregation as printed",
    "exact": "by Q-aggregation, at its optimum",
}


def personalise_section(finding: Mapping[str, Any]) -> Section:
    """Make the section.

    Args:
        finding: As `kernfed_server.methods.personalise.findings` makes it.
    """
    clients = list(finding["clients"])
    names = [str(c["client"]) for c in clients]
    charts = []
    if "matrix" in finding and 1 < len(names) <= MAX_BARS:
        matrix, distances = np.array(finding["matrix"]), np.array(finding["distances"])
        order = cluster(distances)
        shown = [names[i] for i in order]
        title = "Collaboration weights"
        svg = heat_map(title, shown, matrix[np.ix_(order, order)], "weight", limit=1.0)
        note = "Row: who learns. Column: from whom. Clients that look alike are neighbours."
        charts.append(Chart(title, svg, note))
        title = "Distance between clients' embeddings (MMD)"
        svg = heat_map(title, shown, distances[np.ix_(order, order)], "MMD, unbiased", limit=None)
        charts.append(Chart(title, svg, "0: no further apart than the noise of their rows."))
    text = (
        f"Weights: {_WEIGHTS.get(str(finding['weights']), str(finding['weights']))}. Trainer: {finding['trainer']}. "
        + " ".join(f"{str(w)[:1].upper()}{str(w)[1:]}." for w in finding["words"])
        + " Each client keeps its model, for kernfed-client predict."
    )
    return Section("Who learns from whom", text, charts, _table(clients))


def personalise_overview(finding: Mapping[str, Any]) -> Overview:
    """Whom each client learns from."""
    clients = list(finding.get("clients", []))
    rows = [[str(c["client"]), teachers(c), str(c["choice"])] for c in clients]
    table = TableOf(["client", "learns from", "found by"], rows)
    return Overview("learns_from", clients, "who learns from whom", table)


def teachers(client: Mapping[str, Any], limit: int = 3) -> str:
    """Whom a client learns from, most weight first, e.g. `itself 62 %, va 30 %`; the rest in one."""
    if not client["told"]:
        return "not told"
    found = list(client["learns_from"])
    parts = [
        f"{'itself' if t['client'] == client['client'] else t['client']} {100 * float(t['weight']):.0f} %"
        for t in found[:limit]
        if float(t["weight"]) >= 0.005
    ]
    rest = 1.0 - sum(float(t["weight"]) for t in found[: len(parts)])
    if rest >= 0.005:
        parts.append(f"others {100 * rest:.0f} %")
    return ", ".join(parts)


def gain_metric(clients: Sequence[Mapping[str, Any]]) -> str | None:
    """The metric that gains are told in: mean squared error, or log-loss of classes."""
    for metric in ("log_loss", "mse"):
        if any(metric in c["scores"].get("personal", {}) for c in clients):
            return metric
    return None


def cluster(distances: Floats) -> list[int]:
    """An order of clients in which those that are near each other are neighbours.

    Args:
        distances: Shape (B, B), symmetric, B at least 2.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    symmetric = (distances + distances.T) / 2.0
    np.fill_diagonal(symmetric, 0.0)
    tree = linkage(squareform(symmetric, checks=False), "average", optimal_ordering=True)
    return [int(i) for i in leaves_list(tree)]


def _table(clients: Sequence[Mapping[str, Any]]) -> TableOf:
    metric = gain_metric(clients)
    columns = ["client", "rows", "learns from", "worth rows", "found by"]
    if metric:
        columns += [f"{METRICS[metric]}, personal", "less than local by", "less than fedavg by"]
    rows = []
    for c in clients:
        cells = [str(c["client"]), str(c["num_rows"]), teachers(c)]
        cells += [f"{float(c['effective_rows']):.0f}" if c["told"] else "–", str(c["choice"]) or "–"]
        if metric:
            scores = c["scores"]
            personal = scores.get("personal", {}).get(metric)
            cells.append("–" if personal is None else f"{personal:.4g}")
            for model in ("local", "global"):
                other = scores.get(model, {}).get(metric)
                cells.append("–" if personal is None or other is None else f"{other - personal:+.4g}")
        rows.append(cells)
    return TableOf(columns, rows)


SECTIONS = {"personalise": personalise_section}
OVERVIEWS = {"personalise": personalise_overview}
