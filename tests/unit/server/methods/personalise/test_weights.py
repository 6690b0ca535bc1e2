"""Weights where clients withhold something, or have few rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import JobError
from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_file import PolicySection
from kernfed.methods.personalise.crossfit import MIN_ROWS
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_simulation.federation import Rows, from_tables
from kernfed_testing.methods.personalise import (
    NAMES,
    clients,
    concept_rows,
    finding,
    notes,
    opposite_rows,
    personal_job,
    run,
    without,
)

pytestmark = pytest.mark.slow


def test_a_client_that_keeps_its_normal_equations_learns_and_teaches_nobody(tmp_path: Path) -> None:
    """The others keep the default; it is scored and served by its own rows, which stay there; the job says so."""
    rows = opposite_rows()
    federation = clients(rows, tmp_path, bee=without(Kind.SUFFICIENT_STATISTIC))
    done = run(personal_job(num_columns=5, grid="lite"), federation)
    told = notes(done)
    assert "bee: no normal equations" in told
    assert "sufficient_statistic" in told
    assert 'The other 5 keep weights = "crossfit", trainer = "exact"' in told
    assert finding(done)["weights"] == "crossfit"
    assert all(done.final.clients[name]["personal"]["mse"] < 0.4 for name in rows)
    matrix, at = np.array(finding(done)["matrix"]), NAMES.index("bee")
    assert matrix[:, at].sum() == matrix[at, at]
    assert 0 < matrix[at, at] < 1
    assert finding(done)["clients"][at]["choice"].endswith("; teaches nobody")


def test_embeddings_alone_lead_past_a_client_without_normal_equations(tmp_path: Path) -> None:
    """With weights of Q-aggregation and the exact trainer too, it is left out as a teacher and has its model."""
    rows = opposite_rows()
    done = run(
        personal_job(num_columns=5, weights="exact"),
        clients(rows, tmp_path, bee=without(Kind.SUFFICIENT_STATISTIC)),
    )
    assert finding(done)["trainer"] == "exact"
    assert all(done.final.clients[name]["personal"]["mse"] < 0.4 for name in rows)


def test_where_most_keep_their_normal_equations_all_go_on_by_embeddings(tmp_path: Path) -> None:
    """Four of six: weights as printed, models from gradients, and everyone still has a model."""
    rows = concept_rows()
    quiet: Any = dict.fromkeys(NAMES[:4], without(Kind.SUFFICIENT_STATISTIC))
    done = run(personal_job(), clients(rows, tmp_path, **quiet))
    assert 'weights = "paper", trainer = "newton"' in notes(done)
    assert finding(done)["weights"] == "paper"
    assert all("personal" in done.final.clients[name] for name in rows)


@pytest.mark.parametrize("size", [1, 2])
def test_clients_of_one_or_two_rows_take_the_common_choice(tmp_path: Path, size: int) -> None:
    """They have a model near those of their group, not the rubbish of their own rows, and teach as others do."""
    rows = opposite_rows()
    few = rows["fox"]
    rows["fox"] = Rows(few.x_train[:size], few.y_train[:size], few.x_test, few.y_test)
    done = run(personal_job(num_columns=5), clients(rows, tmp_path))
    assert f"fox: fewer than {MIN_ROWS} different training rows" in notes(done)
    assert all(done.final.clients[name]["personal"]["mse"] < 0.4 for name in rows)
    assert "the common choice" in finding(done)["clients"][5]["choice"]
    for weights in ("paper", "exact"):
        one = run(personal_job(num_columns=5, weights=weights), clients(rows, tmp_path / weights))
        assert "personal" in one.final.clients["fox"]


def test_a_client_of_copies_of_two_rows_takes_the_common_choice(tmp_path: Path) -> None:
    """Its rows cannot be held out of their own copies, so it scores nothing; the job says so."""
    rows = opposite_rows()
    few = rows["fox"]
    rows["fox"] = Rows(np.tile(few.x_train[:2], (10, 1)), np.tile(few.y_train[:2], 10), few.x_test, few.y_test)
    done = run(personal_job(num_columns=5), clients(rows, tmp_path))
    assert f"fox: fewer than {MIN_ROWS} different training rows" in notes(done)
    assert all(done.final.clients[name]["personal"]["mse"] < 0.4 for name in rows)


def test_nobody_with_enough_rows_is_told_what_to_do(tmp_path: Path) -> None:
    """A federation of clients with two rows each cannot hold any out."""
    rows = concept_rows(sizes=(2, 2, 2))
    with pytest.raises(JobError, match=r"at least 3 different training rows.*add rows"):
        run(personal_job(), clients(rows, tmp_path))


def test_weights_that_are_not_told_are_not_shown_and_harm_nobody(tmp_path: Path) -> None:
    """With the exact trainer a client may keep its weights: it has its model all the same."""
    rows = concept_rows()
    done = run(personal_job(), clients(rows, tmp_path, cat=without(Kind.COLLABORATION_WEIGHTS)))
    assert "cat: collaboration weights not told" in notes(done)
    found = {c["client"]: c for c in finding(done)["clients"]}
    assert not found["cat"]["told"]
    assert found["ant"]["told"]
    assert "personal" in done.final.clients["cat"]


@pytest.mark.parametrize("trainer", ["newton", "fedavg"])
def test_trainers_that_need_weights_leave_out_who_does_not_tell_them(tmp_path: Path, trainer: str) -> None:
    """That client has no personal model; where nobody tells, the job fails and says what to allow."""
    rows = concept_rows()
    quiet: Any = without(Kind.COLLABORATION_WEIGHTS)
    job = personal_job(trainer=trainer, rounds=6, num_frequencies=30)
    done = run(job, clients(rows, tmp_path / "one", cat=quiet))
    assert "no personal model is trained for them" in notes(done)
    assert "personal" in done.final.clients["ant"]
    assert "they keep the ridge model that cross-fitting gave them" in notes(done)
    kept = json.loads((tmp_path / "one" / "cat" / "model" / "model.json").read_text())
    assert "personal-network" not in kept.get("kind", "")
    with pytest.raises(JobError, match='use trainer = "exact"'):
        run(job, clients(rows, tmp_path / "all", **dict.fromkeys(rows, quiet)))


def test_a_client_that_may_not_embed_refuses_the_job(tmp_path: Path) -> None:
    """Embeddings are what the method stands on; too few rows for the policy are refused alike."""
    with pytest.raises(JobError, match="mean_embedding, which must not leave"):
        run(personal_job(), clients(concept_rows(), tmp_path / "a", ant=without(Kind.MEAN_EMBEDDING)))
    with pytest.raises(JobError, match="fewer than 15 training rows"):
        run(personal_job(), clients(concept_rows(), tmp_path / "b", ant={"min_rows": 15}))


def test_twelve_rows_without_test_rows_are_too_few_and_the_remedy_is_told(tmp_path: Path) -> None:
    """A quarter is held out, so nine are left, below the policy's ten: told before round 1, with three ways out."""
    x = np.random.default_rng(3).normal(size=(52, 3))
    parts = {
        name: PartitionData(part, None, part.sum(axis=1), 0, np.arange(len(part)))
        for name, part in zip("ab", (x[:12], x[12:]), strict=True)
    }

    def federation(policy: PolicySection) -> dict[str, LocalJob]:
        jobs = from_tables({name: (part, None) for name, part in parts.items()}, tmp_path)
        for job in jobs.values():
            job.file = job.file.model_copy(update={"policy": policy})
        return jobs

    with pytest.raises(JobError) as refused:
        run(personal_job(), federation(PolicySection()))
    told = str(refused.value)
    assert "before round 1, 1 of 2 clients did not pass data.describe; nothing was trained" in told
    assert "fewer than 10 training rows; add rows, or let this client's administrator lower policy.min_rows" in told
    assert "a test partition in the client file, or a smaller data.test_fraction in the job" in told
    for job, policy in (
        (personal_job(data="test_fraction = 0.1"), PolicySection()),
        (personal_job(), PolicySection(min_rows=9)),
    ):
        assert "personal" in run(job, federation(policy)).final.clients["a"]
