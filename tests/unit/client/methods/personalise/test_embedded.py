"""Jobs that embed unlabelled rows beside those that clients train on."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.errors import ConfigError, JobError
from kernfed.jobs.client_file import DatasetSection, PartitionFile
from kernfed.methods.personalise.embeddings import embed
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.state import personal
from kernfed_simulation.federation import Rows
from kernfed_testing.methods.personalise import NAMES, clients, finding, notes, personal_job, run

WANTED: dict[str, Any] = {"view": "x", "embed_unlabelled": True}


def places(size: int = 5) -> dict[str, Rows]:
    """Six clients of few rows in two places, where y follows another curve of x each."""
    random, rows = np.random.default_rng(17), {}
    for i, name in enumerate(NAMES):
        x = 1.5 * (-1.0) ** i + random.normal(size=(size + 40, 3))
        y = (1.0 + (i % 2)) * x[:, 0] + 0.3 * random.normal(size=len(x))
        rows[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def with_unlabelled(jobs: dict[str, LocalJob], name: str, x: Floats, folder: Path, **policy: Any) -> None:
    """Give a client a file of unlabelled rows."""
    path = folder / f"{name}.csv"
    path.write_text("x0,x1,x2\n" + "".join(f"{a!r},{b!r},{c!r}\n" for a, b, c in x.tolist()))
    part = PartitionFile(path=path)
    file = jobs[name].file
    jobs[name].file = file.model_copy(
        update={
            "datasets": {"default": DatasetSection(train=part, unlabelled=part)},
            "policy": file.policy.model_copy(update=policy),
        }
    )


def more_rows(num: int, name: str = "ant") -> Floats:
    random = np.random.default_rng(19)
    found: Floats = 1.5 * (-1.0) ** NAMES.index(name) + random.normal(size=(num, 3))
    return found


@pytest.mark.parametrize("weights", ["paper", "crossfit"])
def test_an_embedding_is_of_both_kinds_of_rows(tmp_path: Path, weights: str) -> None:
    """Its error falls as its rows grow; the note says whose there are, and the others' embeddings stay as they are."""
    (tmp_path / "files").mkdir()
    alone = clients(places(), tmp_path / "alone")
    before = finding(run(personal_job(view="x", weights=weights), alone))
    jobs = clients(places(), tmp_path / "more")
    with_unlabelled(jobs, "ant", more_rows(95), tmp_path / "files")
    done = run(personal_job(weights=weights, **WANTED), jobs)
    assert "unlabelled rows in the embeddings: 95 rows of ant" in notes(done)
    shared, other = (personal(found["bee"]).needed_shared() for found in (jobs, alone))
    state = personal(jobs["ant"])
    own = embed(state.embedded)
    assert own.num_rows == 100
    np.testing.assert_allclose(shared.means[0], own.mean, atol=1e-12)
    np.testing.assert_array_equal(shared.means[1:], other.means[1:])
    assert shared.num_embedded == (100, 5, 5, 5, 5, 5)
    assert shared.num_rows.tolist() == [5.0] * 6
    gains = {c["client"]: c["gain"]["alone"] for c in finding(done)["clients"]}
    assert gains["ant"] == pytest.approx(own.error, rel=1e-3)
    was = {c["client"]: c["gain"]["alone"] for c in before["clients"]}
    assert gains["ant"] < was["ant"] / 10
    assert gains["bee"] == pytest.approx(was["bee"], rel=1e-3)


def test_components_are_of_all_rows_that_are_embedded(tmp_path: Path) -> None:
    """Rows without a target say as much of the columns as those that have one: here they alone vary along x1."""
    (tmp_path / "files").mkdir()
    jobs = clients(places(), tmp_path)
    with_unlabelled(jobs, "ant", more_rows(200) * [0.1, 30.0, 0.1], tmp_path / "files")
    settings: dict[str, Any] = {"embedding_kernel": "polynomial2", "components": 1, "trainer": "exact"}
    run(personal_job(weights="exact", c_q=1.0, c_p=1.0, **WANTED, **settings), jobs)
    assert len(personal(jobs["ant"]).embedded) == 205
    lines = list(csv.reader((tmp_path / "ant" / "components.csv").read_text().splitlines()))
    assert abs(float(lines[3][3])) > 0.99


def test_too_few_unlabelled_rows_take_no_part(tmp_path: Path) -> None:
    """An aggregate stands for the policy's least number of rows, or more; where nobody has any, a note says so."""
    jobs = clients(places(12), tmp_path)
    with_unlabelled(jobs, "ant", more_rows(9), tmp_path, min_rows=10, sparse_columns="allow")
    done = run(personal_job(**WANTED), jobs)
    assert "unlabelled rows in the embeddings: none" in notes(done)
    assert personal(jobs["ant"]).needed_shared().num_embedded == ()


def test_unlabelled_rows_of_few_values_are_refused(tmp_path: Path) -> None:
    """Random features of them would tell of the few that have a combination of values."""
    jobs = clients(places(12), tmp_path)
    x = np.ones((40, 3))
    x[:3, 0] = 2.0
    with_unlabelled(jobs, "ant", x, tmp_path, min_rows=10, sparse_columns="allow")
    with pytest.raises(JobError, match="so few values"):
        run(personal_job(**WANTED), jobs)


def test_unlabelled_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """A column that is missing is named with its file; targets are not embedded without labels."""
    jobs = clients(places(), tmp_path)
    with_unlabelled(jobs, "ant", more_rows(9), tmp_path)
    (tmp_path / "ant.csv").write_text("x0,x1\n1,2\n")
    with pytest.raises(JobError, match="column 'x2' is missing"):
        run(personal_job(**WANTED), jobs)
    with pytest.raises(ConfigError, match="embed_unlabelled"):
        personal_job(embed_unlabelled=True)
