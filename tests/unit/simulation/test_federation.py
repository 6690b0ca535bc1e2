"""Clients in one process have the data, splits and policies of their daemons."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError, JobError
from kernfed.jobs.client_file import PartitionFile
from kernfed.jobs.job_file import JobFile, load_job
from kernfed_client.data.local_job import LocalJob
from kernfed_simulation.central import central_weights, measure_central
from kernfed_simulation.federation import from_client_files, from_data_file, from_rows, open_cohort
from kernfed_simulation.partition import parse_partitioning
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import make_job, regression_rows
from kernfed_testing.places import HEART

SITES = ("cleveland", "hungarian", "switzerland", "va")


@pytest.fixture(scope="module")
def job() -> JobFile:
    return load_job(HEART / "newton.toml")[0]


@pytest.fixture
def combined(tmp_path: Path) -> Path:
    """All hospitals' rows in one file, with their names, interleaved."""
    tables = {}
    for site in SITES:
        with (HEART / "data" / f"{site}.csv").open(newline="") as file:
            tables[site] = list(csv.reader(file))
    path = tmp_path / "heart.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Site", *tables["va"][0]])
        for i in range(1, max(map(len, tables.values()))):
            for site in reversed(SITES):
                if i < len(tables[site]):
                    writer.writerow([site, *tables[site][i]])
    return path


def test_a_column_of_one_file_gives_the_same_model_as_the_sites_own_files(
    job: JobFile, combined: Path, tmp_path: Path
) -> None:
    """Names, splits, order of rows: with the policy of a simulation nothing depends on where rows were read from."""
    for site in SITES:
        text = (HEART / "clients" / f"{site}.toml").read_text().replace("../data", str(HEART / "data"))
        (tmp_path / f"{site}.toml").write_text(text + "\n[policy]\nmin_rows = 1\n")
    files = from_client_files([tmp_path / f"{s}.toml" for s in SITES], tmp_path / "a")
    column = from_data_file(PartitionFile(path=combined), parse_partitioning("column:Site"), None, job, tmp_path / "b")
    first, second = simulate(job, files), simulate(job, column)
    assert first.model is not None
    assert second.model is not None
    assert first.model.weights.tobytes() == second.model.weights.tobytes()
    assert first.final == second.final


def test_the_pooled_reference_is_ridge_on_all_rows(tmp_path: Path) -> None:
    """Central weights solve the pooled normal equations, and newton reaches them."""
    jobs = from_rows(regression_rows({"ant": 50, "bee": 70}), (), tmp_path)
    done = simulate(make_job("newton", ridge=0.01), jobs)
    z = np.concatenate([j.z_train.numpy() for _, j in sorted(jobs.items())])
    y = np.concatenate([j.y_train.numpy() for _, j in sorted(jobs.items())])
    expected = np.linalg.solve(z.T @ z + 0.01 * len(z) * np.eye(40), z.T @ y)
    assert np.allclose(central_weights(jobs, 0.01), expected, atol=1e-9)
    assert done.final.pooled["central"]["mse"] == pytest.approx(done.final.pooled["global"]["mse"], rel=1e-6)
    assert set(done.final.clients["ant"]) == {"local", "global", "central"}
    assert measure_central(jobs, 0.01).pooled == {"central": done.final.pooled["central"]}
    with pytest.raises(DataError, match="no client"):
        central_weights({}, 0.01)


def test_policies_of_client_files_hold_in_a_simulation(job: JobFile, tmp_path: Path) -> None:
    """What a daemon would refuse, its simulation refuses, with the same words."""
    for site in SITES:
        text = (HEART / "clients" / f"{site}.toml").read_text().replace("../data", str(HEART / "data"))
        if site == "va":
            text += '\n[policy]\nallow = ["summary"]\n'
        if site == "switzerland":
            text += "\n[policy]\nmin_rows = 200\n"
        (tmp_path / f"{site}.toml").write_text(text)
    done = simulate(job, from_client_files([tmp_path / f"{s}.toml" for s in SITES], tmp_path))
    assert isinstance(done.error, JobError)
    assert "switzerland: REFUSED_BY_POLICY: step data.describe would tell about fewer than 200" in str(done.error)
    assert done.model is None


def test_cohorts_that_do_not_fit_are_refused(job: JobFile, tmp_path: Path) -> None:
    """A client that the job names is missing, or the quorum is larger than the federation."""
    jobs = from_client_files([HEART / "clients" / "va.toml"], tmp_path)
    with pytest.raises(ConfigError, match=r"names cleveland, hungarian, switzerland, but the simulation has va"):
        open_cohort(job, jobs)
    with pytest.raises(ConfigError, match="min_clients is 3"):
        open_cohort(make_job("dkrr", cohort="min_clients = 3"), jobs)
    with pytest.raises(ConfigError, match="there is a client 'va' already"):
        from_client_files([HEART / "clients" / "va.toml"] * 2, tmp_path)


def test_rows_without_a_value_in_the_column_are_refused(job: JobFile, tmp_path: Path) -> None:
    """The error names file, column and row."""
    path = tmp_path / "gaps.csv"
    header = "site,age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,disease"
    path.write_text(f"{header}\na,63,1,4,140,260,0,1,112,1,3.0,1\n,44,1,4,130,209,0,1,127,0,0.0,0\n")
    with pytest.raises(DataError, match=r"gaps.csv: column 'site' has no value in row 3 \(1 such rows\)"):
        from_data_file(PartitionFile(path=path), parse_partitioning("column:site"), None, job, tmp_path)


def test_an_array_of_an_archive_deals_its_rows_out(tmp_path: Path) -> None:
    """The array of that name says whose a row is, not the target's, and an archive without it is refused."""
    random = np.random.default_rng(3)
    x, y = random.normal(size=(12, 3)), random.normal(size=12)
    path = tmp_path / "rows.npz"
    np.savez(path, x=x, y=y, site=np.array(["va", "basel", "va", "zurich"] * 3))
    job = make_job("dkrr")
    jobs = from_data_file(PartitionFile(path=path), parse_partitioning("column:site"), None, job, tmp_path)
    assert sorted(jobs) == ["basel", "va", "zurich"]
    with pytest.raises(DataError, match="has no array 'ward' but x, y, site; name it so"):
        from_data_file(PartitionFile(path=path), parse_partitioning("column:ward"), None, job, tmp_path)


def test_a_diverged_run_leaves_its_diagnosis_and_the_last_good_model(tmp_path: Path) -> None:
    """The error is told, and the files hold the model from before."""
    jobs = from_rows(regression_rows({"ant": 25, "bee": 18, "cat": 31}), (), tmp_path / "state")
    out = tmp_path / "out"
    done = simulate(make_job("newton", ridge=1e-4, step="paper"), jobs, out=out)
    assert done.error is not None
    assert done.error.reason == "DIVERGED"
    assert (out / "model.safetensors").exists()
    assert '"DIVERGED"' in (out / "job.json").read_text()


def limited(tmp_path: Path, most: int | None) -> dict[str, LocalJob]:
    """Two clients, of which one has a limit on the memory of a job's matrices."""
    jobs = from_rows(regression_rows({"ant": 900, "bee": 700}), (), tmp_path / str(most))
    jobs["ant"].file = jobs["ant"].file.model_copy(update={"max_memory_bytes": most})
    return jobs


def test_a_limit_refuses_what_cannot_fit_and_changes_no_bit_of_what_can(tmp_path: Path) -> None:
    """700 features of 900 rows need 5 MB at once, and 4 MB as the sums that ridge needs."""
    job = make_job("newton", frequencies=700, rounds=2)
    free = simulate(job, limited(tmp_path, None))
    within = simulate(job, limited(tmp_path, 4_000_000))
    assert free.model is not None
    assert within.model is not None
    assert free.model.weights.tobytes() == within.model.weights.tobytes()
    refused = simulate(job, limited(tmp_path, 3_000_000))
    assert isinstance(refused.error, JobError)
    assert "ridge matrices for 700 features of 900 training rows" in str(refused.error)
    head = simulate(make_job("newton", frequencies=700, loss="squared"), limited(tmp_path, 4_000_000))
    assert "2 matrices of 700 features of 900 training rows" in str(head.error)
    assert all(event.event.round_num == 0 for event in head.events), "before round 1"
