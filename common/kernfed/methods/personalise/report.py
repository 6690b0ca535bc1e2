"""The report's section on personalisation: weights and distances between clients, and each client's gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Floats
from kernfed.methods.finding import reading
from kernfed.methods.personalise.finding import Gain, Learner, PersonaliseFinding
from kernfed.metric_names import METRICS
from kernfed.report.charts import MAX_BARS, heat_map
from kernfed.report.parts import Chart, Overview, Section, TableOf

LEVEL = 0.05
"""Probability that any two clients of one law are called different."""

_WEIGHTS = {
    "crossfit": "proposed by embeddings, clusters and losses, decided by cross-fitting",
    "paper": "by Q-aggregation as printed",
    "exact": "by Q-aggregation, at its optimum",
}


def personalise_section(finding: PersonaliseFinding) -> Section:
    """Make the section."""
    names = [c.client for c in finding.clients]
    charts = []
    if finding.matrix is not None and finding.distances is not None and 1 < len(names) <= MAX_BARS:
        matrix, distances = np.array(finding.matrix), np.array(finding.distances)
        order = cluster(distances)
        shown = [names[i] for i in order]
        title = "Collaboration weights"
        svg = heat_map(title, shown, matrix[np.ix_(order, order)], "weight", limit=1.0)
        note = "Row: who learns. Column: from whom. Clients that look alike are neighbours."
        charts.append(Chart(title, svg, note))
        title = "Distance between clients' embeddings (MMD)"
        svg = heat_map(title, shown, distances[np.ix_(order, order)], "MMD, unbiased", limit=None)
        charts.append(Chart(title, svg, "0: no further apart than the noise of their rows."))
    differ = differing(finding)
    begins = tuple(f"{name}{mark}" for name in names for mark in ":,")  # a client's name stays as it is
    text = (
        f"Weights: {_WEIGHTS.get(finding.weights, finding.weights)}. Trainer: {finding.trainer}. "
        + " ".join(f"{w if w.startswith(begins) else w[:1].upper() + w[1:]}." for w in finding.words)
        + differ
        + " Each client keeps its model, for kernfed-client predict."
    )
    return Section("Who learns from whom", text, charts, _table(finding.clients))


def differing(finding: PersonaliseFinding) -> str:
    """How many pairs of clients differ by more than chance, as a sentence; empty where nobody can say."""
    if finding.alike is None:
        return ""
    values = sorted(p for i, row in enumerate(finding.alike) for p in row[:i] if p is not None)
    if not values:
        return ""
    pairs = len(values)
    count = next((i for i, p in enumerate(values) if p > LEVEL / (pairs - i)), pairs)
    return (
        f" {count} of {pairs} pairs of clients have rows of different laws, by a kernel two-sample test at {LEVEL:.0%} "
        "for all pairs together (Holm)."
    )


def personalise_overview(finding: PersonaliseFinding) -> Overview:
    """Whom each client learns from."""
    rows = [[c.client, teachers(c), c.choice] for c in finding.clients]
    table = TableOf(["client", "learns from", "found by"], rows)
    return Overview("learns_from", finding.to_json()["clients"], "who learns from whom", table)


def teachers(learner: Learner, limit: int = 3) -> str:
    """Whom a client learns from, most weight first, e.g. `itself 62 %, va 30 %`; the rest in one."""
    if not learner.told:
        return "not told" if learner.learns else "–"
    found = learner.learns_from
    parts = [
        f"{'itself' if t.client == learner.client else t.client} {100 * t.weight:.0f} %"
        for t in found[:limit]
        if t.weight >= 0.005
    ]
    rest = 1.0 - sum(t.weight for t in found[: len(parts)])
    if rest >= 0.005:
        parts.append(f"others {100 * rest:.0f} %")
    return ", ".join(parts)


def gain_metric(clients: Sequence[Learner]) -> str | None:
    """The metric that gains are told in: mean squared error, or log-loss of classes."""
    for metric in ("log_loss", "mse"):
        if any(metric in c.scores.get("personal", {}) for c in clients):
            return metric
    return None


def cluster(distances: Floats) -> list[int]:
    """An order of clients in which those that are near each other are neighbours.

    Args:
        distances: Shape (B, B), symmetric, B at least 2.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage  # noqa: PLC0415  # only reports draw a tree
    from scipy.spatial.distance import squareform  # noqa: PLC0415  # only reports draw a tree

    symmetric = (distances + distances.T) / 2.0
    np.fill_diagonal(symmetric, 0.0)
    tree = linkage(squareform(symmetric, checks=False), "average", optimal_ordering=True)
    return [int(i) for i in leaves_list(tree)]


def _table(clients: Sequence[Learner]) -> TableOf:
    metric = gain_metric(clients)
    columns = ["client", "rows", "learns from", "worth rows", "found by"]
    promised = any(c.gain is not None for c in clients)
    if promised:
        columns += ["effective dimension", "expected error, alone", "mixed"]
    stopped = any(c.round_num is not None for c in clients)
    if stopped:
        columns.append("of round")
    if metric:
        columns += [f"{METRICS[metric]}, personal", "less than local by", "less than fedavg by"]
    rows = []
    for c in clients:
        cells = [c.client, str(c.num_rows), teachers(c)]
        cells += [f"{c.effective_rows:.0f}" if c.told else "–", c.choice or "–"]
        if promised:
            cells += _promised(c.gain)
        if stopped:
            cells.append("–" if c.round_num is None else str(c.round_num))
        if metric:
            personal = c.scores.get("personal", {}).get(metric)
            cells.append("–" if personal is None else f"{personal:.4g}")
            for model in ("local", "global"):
                other = c.scores.get(model, {}).get(metric)
                cells.append("–" if personal is None or other is None else f"{other - personal:+.4g}")
        rows.append(cells)
    return TableOf(columns, rows)


def _promised(gain: Gain | None) -> list[str]:
    if gain is None:
        return ["–"] * 3
    dimension = f"{gain.effective_dimension:.3g}" if gain.effective_dimension > 0 else "–"
    return [dimension, f"{gain.alone:.3g}", f"{gain.mixed:.3g}"]


SECTIONS = {PersonaliseFinding.name: reading(PersonaliseFinding, personalise_section)}
OVERVIEWS = {PersonaliseFinding.name: reading(PersonaliseFinding, personalise_overview)}
