"""Jobs with medians, trimmed means or bounded means of updates: one client alone does not move them far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply
from kernfed.methods.personalise.training_messages import TrainedNetworks
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.updating import note_kept_back
from kernfed_testing.in_process import Tamper, bench, make_job, regression_rows, stating

SIZES = {"ant": 60, "bee": 50, "dog": 55, "eel": 60, "zed": 30}
FOE = "zed"
METHODS: list[tuple[str, str, dict[str, Any]]] = [
    ("fedavg", "fedavg.local_update", {"rounds": 8}),
    ("fedprox", "fedprox.local_update", {"rounds": 8}),
    ("dkrr", "ridge.local_solve", {}),
    ("fedavg", "head.descent", {"rounds": 8, "loss": "squared"}),
    ("fedsophia", "head.sophia", {"rounds": 8, "loss": "squared"}),
]
RULES: list[dict[str, Any]] = [{"aggregate": "median"}, {"aggregate": "trimmed", "trim": 0.2}, {"max_norm": 1.0}]


def of(value: float) -> Tamper:
    """Weights that hold one number everywhere."""

    def change(reply: Reply) -> Reply:
        return stating(weights=np.full_like(getattr(reply, "weights"), value))(reply)  # noqa: B009  # of some replies

    return change


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(next(iter(rule.values()))))
@pytest.mark.parametrize(("method", "step", "settings"), METHODS, ids=[m[1] for m in METHODS])
def test_one_client_does_not_move_the_model_far(
    tmp_path: Path, method: str, step: str, settings: dict[str, Any], rule: dict[str, Any]
) -> None:
    """Weights of 7.0, and of 10^5, at one of five clients; with the plain mean they are the model, or left out."""
    rows = regression_rows(SIZES)
    job = make_job(method, frequencies=20, **settings, **rule)
    honest = bench(rows, tmp_path).run(job).metrics[-1].pooled["global"]["mse"]
    for value in (7.0, 1e5):
        found = bench(rows, tmp_path, tamper={(FOE, step): of(value)}).run(job)
        assert found.metrics[-1].pooled["global"]["mse"] < 1.5 * honest + 0.3
    plain = bench(rows, tmp_path, tamper={(FOE, step): of(7.0)}).run(make_job(method, frequencies=20, **settings))
    refused = {e.client for e in plain.journal.events if e.kind is EventKind.CLIENT_FAILED}
    assert refused == {FOE} or plain.metrics[-1].pooled["global"]["mse"] > 2 * honest


def test_people_are_told_whose_updates_are_bounded(tmp_path: Path) -> None:
    """Once for each client; a median counts clients alike, and says so where two are too few."""
    rows = regression_rows(SIZES)
    tamper = {(FOE, "fedavg.local_update"): of(7.0)}
    outcome = bench(rows, tmp_path, tamper=tamper).run(make_job("fedavg", rounds=3, max_norm=2.0))
    (note,) = [note for note in outcome.notes if note.startswith(f"{FOE}: its update was lowered to")]
    assert "method.max_norm" in note
    two = {name: rows[name] for name in ("ant", "bee")}
    outcome = bench(two, tmp_path / "two").run(make_job("fedavg", rounds=2, aggregate="median"))
    assert [note for note in outcome.notes if note.startswith("2 clients answered in a round")]


def test_keys_that_do_nothing_are_refused() -> None:
    """`trim` belongs to the trimmed mean, a bound of norms to the mean; newton needs sums that are exact."""
    with pytest.raises(ConfigError, match='trim: belongs to aggregate = "trimmed"'):
        make_job("fedavg", trim=0.1)
    with pytest.raises(ConfigError, match='max_norm: belongs to aggregate = "mean"'):
        make_job("fedavg", aggregate="median", max_norm=2.0)
    with pytest.raises(ConfigError, match="aggregate"):
        make_job("newton", aggregate="median")


@dataclass
class Notes:
    """What a run was asked to tell, by subject."""

    told: dict[str, str] = field(default_factory=dict)

    def note_first(self, subject: str, message: str) -> None:
        self.told.setdefault(subject, message)


def test_parameters_that_kept_their_values_are_told() -> None:
    """A client whose networks keep many parameters back is named with their part; one that keeps few is not."""
    notes, none = Notes(), np.zeros((1, 1))
    for share in (0.34, 0.5):
        replies = {
            name: TrainedNetworks(num_rows=60, networks=none, kept_back=part)
            for name, part in (("ant", share), ("bee", 0.1))
        }
        note_kept_back(cast("Run", notes), replies)
    (text,) = notes.told.values()
    assert text.startswith("ant: 34 % of the network's parameters kept their values")
    assert "method.batch_size" in text
