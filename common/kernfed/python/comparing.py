"""`kernfed.compare`: what jobs and simulations left, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kernfed.jobs.comparison import JobsCompared, compare_jobs
from kernfed.python.results import Results


def compare(results: Mapping[str, Results], *, metrics: Collection[str] = (), model: str = "") -> JobsCompared:
    """Compare the scores of jobs, at each client and over them, with the first one.

    Args:
        results: Jobs or simulations that are over, by the names to tell them by; two at least.
        metrics: By their names in metrics files, such as `auc`; unset: the main ones.
        model: Of each job, as metrics name it; unset: the personal one, else the global one, else the client's own.

    Returns:
        Tables of differences with standard errors; printed, the mean differences.

    Raises:
        ConfigError: Fewer than two jobs, or a metric that there is not.
        DataError: A job has no scores with errors, or the jobs have nothing in common.
    """
    return compare_jobs([(name, found.findings) for name, found in results.items()], metrics, model)
