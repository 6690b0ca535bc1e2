"""Names of the metrics as people read them, and which of them tells most. No numpy: commands start with it."""

from __future__ import annotations

from collections.abc import Mapping

METRICS: Mapping[str, str] = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "r2": "R²",
    "rmse": "root mean squared error",
    "log_loss": "log-loss",
    "mse": "mean squared error",
}
"""Metrics by name, the most telling first, and what a reader calls them; metrics are listed in this order."""
LOWER_IS_BETTER = frozenset({"rmse", "log_loss", "mse"})
"""Metrics of which less is better."""
ROW_SHARE = "row_share"
"""Share of the cohort's training rows behind a round, among the numbers of training."""


def telling_first(names: set[str]) -> list[str]:
    """Put names in the order of `METRICS`; others follow, sorted."""
    return [name for name in METRICS if name in names] + sorted(names - METRICS.keys())
