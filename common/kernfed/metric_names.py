"""Names of the metrics as people read them, and which of them tells most. No numpy: commands start with it."""

from __future__ import annotations

import math
from collections.abc import Mapping

METRICS: Mapping[str, str] = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "r2": "R²",
    "rmse": "root mean squared error",
    "log_loss": "log-loss",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "brier": "Brier score",
    "average_precision": "average precision",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "ppv": "positive predictive value",
    "npv": "negative predictive value",
    "calibration_slope": "calibration slope",
    "calibration_intercept": "calibration intercept",
}
"""Metrics by name, the most telling first, and what a reader calls them; metrics are listed in this order."""
LOWER_IS_BETTER = frozenset({"rmse", "log_loss", "mse", "mae", "brier"})
"""Metrics of which less is better."""
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("auc", "accuracy", "average_precision"), (0.0, 1.0)),
    **dict.fromkeys(("sensitivity", "specificity", "ppv", "npv"), (0.0, 1.0)),
    **dict.fromkeys(sorted(LOWER_IS_BETTER), (0.0, math.inf)),
    "r2": (-math.inf, 1.0),
    **dict.fromkeys(("calibration_slope", "calibration_intercept"), (-math.inf, math.inf)),
}
"""Least and most that a metric can be."""
DELIVERED = ("personal", "global")
"""Names of the model that a job gives its clients: the first that was measured."""
ROW_SHARE = "row_share"
"""Share of the cohort's training rows behind a round, among the numbers of training."""


def telling_first(names: set[str]) -> list[str]:
    """Put names in the order of `METRICS`; others follow, sorted."""
    return [name for name in METRICS if name in names] + sorted(names - METRICS.keys())
