"""Metrics of a job on streams from what clients measure: all predictions so far, and those since the last time."""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.arrays import Array
from kernfed.federation.evaluation import metrics, pool
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.methods.online.messages import StreamMetrics
from kernfed_server.jobs.state import State, json_array

_NAME = "measured"


class Measurements:
    """Remembers what was measured before, by which drift is seen."""

    def __init__(self, task: LearningTask, resumed: State | None = None) -> None:
        """Begin, or go on from a checkpoint; one of a release that kept nothing here measures from the start."""
        self._task = task
        self._before: dict[str, tuple[int, float]] = {}
        """Rows and squared error of each client when it was last measured."""
        if resumed is not None and _NAME in resumed:
            self._before = {client: (rows, error) for client, (rows, error) in resumed.json(_NAME).items()}

    def to_arrays(self) -> dict[str, Array]:
        """For a checkpoint."""
        return {_NAME: json_array(self._before)}

    def metrics(self, found: Mapping[str, StreamMetrics], training: Scores) -> RoundMetrics:
        """Metrics of a round, per client and pooled.

        Args:
            found: What each client measured.
            training: Facts of the coordinator's own.
        """
        clients: dict[str, dict[str, Scores]] = {}
        recent_rows, recent_error = 0, 0.0
        for client, m in sorted(found.items()):
            if not m.sums.num_rows:
                continue
            clients[client] = {"personal": metrics(m.sums, self._task)}
            if m.alone:
                clients[client]["local"] = metrics(m.alone[0], self._task)
            rows, error = self._before.get(client, (0, 0.0))
            if m.sums.num_rows > rows:
                new, more = m.sums.num_rows - rows, max(m.sums.squared_error - error, 0.0)
                clients[client]["recent"] = {"mse": more / new}
                recent_rows, recent_error = recent_rows + new, recent_error + more
            self._before[client] = m.sums.num_rows, m.sums.squared_error
        parts: list[MetricSums] = [m.sums for _, m in sorted(found.items()) if m.sums.num_rows]
        pooled: dict[str, Scores] = {"personal": pool(parts, self._task)} if parts else {}
        alone = [sums for _, m in sorted(found.items()) for sums in m.alone if sums.num_rows]
        if alone:
            pooled["local"] = pool(alone, self._task)
        if recent_rows:
            pooled["recent"] = {"mse": recent_error / recent_rows}
        if found:
            kernels = sum(m.effective_kernels for m in found.values()) / len(found)
            training = {**training, "effective_kernels": kernels}
        return RoundMetrics(pooled, clients, training)
