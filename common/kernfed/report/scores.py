"""What scores are worth, for people: intervals at each client and over them, and whom the job's model serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernfed.methods.scores import ClientScores, GainOf, ScoreOverClients, ScoresFinding
from kernfed.metric_names import METRICS, telling_first
from kernfed.report.parts import Overview, Section, TableOf
from kernfed.wording import listed, number, with_error

_CLIENTS = 40
"""Clients in a table, those at which the job's model loses most first."""
_GLANCE = ("auc", "r2", "brier", "mse")
"""Metrics in the table at a terminal, the first two that were measured."""
_MODELS_FIRST = ("global", "personal", "local")
_SERVED = ("personal", "global")
"""The model of a job that a terminal shows beside the client's own, the first that it has; the report has all."""


def scores_section(finding: ScoresFinding) -> Section:
    """Make the section of the report."""
    words = [f"Over {finding.behind}." if finding.num_clients else "No client measured each of the models."]
    words += [f"{verdict.words[:1].upper()}{verdict.words[1:]}." for verdict in finding.verdicts]
    equity = finding.equity_words()
    words += [f"{equity[:1].upper()}{equity[1:]}."] if equity else []
    words += [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in left_out(finding)]
    words += [_HOW]
    return Section("What the scores are worth", " ".join(words), table=_whole_table(finding))


def scores_overview(finding: ScoresFinding) -> Overview:
    """Make the overview at a terminal."""
    title = f"what the scores are worth (95 % intervals), over {finding.behind}"
    return Overview(finding.name, finding.to_json(), title, _glance(finding), result=True)


def left_out(finding: ScoresFinding) -> Iterator[str]:
    """Clients that tell no number of some metrics, by these metrics."""
    where: dict[tuple[str, ...], list[str]] = {}
    for client in finding.clients:
        if client.left_out:
            where.setdefault(client.left_out, []).append(client.client)
    for metrics, clients in where.items():
        names = ", ".join(METRICS[metric] for metric in telling_first(set(metrics)))
        at = listed(clients, 6, more=" and {left} more")
        yield f"left out at {at}, where fewer rows than the policy's min_rows are behind them: {names}"


def spread(value: float, low: float, high: float) -> str:
    """A number and its interval."""
    return f"{number(value)} [{number(low)}, {number(high)}]"


_HOW = (
    "A number in brackets is a 95 % interval by the client's own test rows, where rows of a group count together; it "
    "does not tell what another split or another training set would give. Sensitivity, specificity and predictive "
    "values are at the share of positive training rows as threshold. The gain is of the job's model over the client's "
    "own on the same rows, ± a standard error; a gain above 0 is better, whatever the metric."
)


def _in_order(finding: ScoresFinding) -> list[ClientScores]:
    """Clients, those first that lose most; of many the others are left out."""
    gain = {s.client: s.gain / s.error if s.error > 0 else 0.0 for s in finding.equity}
    if len(finding.clients) <= _CLIENTS:
        return list(finding.clients)
    return sorted(finding.clients, key=lambda c: (gain.get(c.client, 0.0), c.client))[:_CLIENTS]


def _models(finding: ScoresFinding) -> list[str]:
    names = {score.model for client in finding.clients for score in client.scores}
    return [m for m in _MODELS_FIRST if m in names] + sorted(names - set(_MODELS_FIRST))


def _gain(gains: Iterable[GainOf], models: list[str], metric: str) -> str:
    own = [g for g in gains if g.against == "local" and g.metric == metric and g.model in models]
    best = min(own, key=lambda g: (g.model != "personal", g.model != "global"), default=None)
    return "" if best is None else with_error(best.gain, best.error, "+")


def _glance(finding: ScoresFinding) -> TableOf:
    known = _models(finding)
    models = [*[model for model in _SERVED if model in known][:1], *(["local"] if "local" in known else [])]
    told = {score.metric for client in finding.clients for score in client.scores}
    metrics = [metric for metric in _GLANCE if metric in told][:2]
    columns = ["client", "rows", "positive"]
    for metric in metrics:
        name = "Brier" if metric == "brier" else METRICS[metric] if metric != "mse" else "MSE"
        columns += [*(f"{name} {model}" for model in models), f"{name} gain"]
    rows = []
    for client in _in_order(finding):
        row = [client.client, str(client.rows), _positives(client, finding)]
        for metric in metrics:
            scores = [client.score(model, metric) for model in models]
            row += ["" if s is None else spread(s.value, s.low, s.high) for s in scores]
            row.append(_gain(client.gains, models, metric))
        rows.append(row)
    means = {(over.model, over.metric): over for over in finding.pooled}
    for name, show in (("(mean)", _mean), ("(pooled)", _pooled)):
        row = [name, f"{finding.num_rows:,}", ""]
        for metric in metrics:
            row += [show(means.get((model, metric))) for model in models]
            row.append(_mean_gain(finding, metric) if show is _mean else "")
        rows.append(row)
    return TableOf(columns, rows)


def _mean(over: ScoreOverClients | None) -> str:
    return "" if over is None else with_error(over.mean, over.mean_error)


def _pooled(over: ScoreOverClients | None) -> str:
    if over is None or over.pooled is None:
        return ""
    return with_error(over.pooled, over.pooled_error or 0.0)


def _mean_gain(finding: ScoresFinding, metric: str) -> str:
    own = [v for v in finding.verdicts if v.against == "local" and v.metric == metric]
    best = min(own, key=lambda v: v.model != "personal", default=None)
    return "" if best is None else with_error(best.gain, best.error, "+")


def _positives(client: ClientScores, finding: ScoresFinding) -> str:
    if client.positives is not None:
        return str(client.positives)
    return "few" if any(c.threshold is not None or c.positives is not None for c in finding.clients) else ""


def _whole_table(finding: ScoresFinding) -> TableOf:
    """Every number: a line for each client and metric."""
    models = _models(finding)
    rows = []
    for client in _in_order(finding):
        for metric in telling_first({score.metric for score in client.scores}):
            scores = [client.score(model, metric) for model in models]
            behind = max((s.behind for s in scores if s is not None), default=0)
            cells = ["–" if s is None else spread(s.value, s.low, s.high) for s in scores]
            rows.append([client.client, METRICS[metric], f"{behind:,}", *cells, _gain(client.gains, models, metric)])
    for metric in telling_first({over.metric for over in finding.pooled}):
        of = {over.model: over for over in finding.pooled if over.metric == metric}
        gain = _mean_gain(finding, metric)
        rows.append(["mean over clients", METRICS[metric], "", *(_mean(of.get(m)) for m in models), gain])
        if any(over.pooled is not None for over in of.values()):
            rows.append(["over their rows", METRICS[metric], "", *(_pooled(of.get(m)) for m in models), ""])
    return TableOf(["client", "metric", "rows behind it", *models, "gain over local"], rows)
