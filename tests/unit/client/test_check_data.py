"""`kernfed-client check-data` as a site administrator runs it: a process, an exit code, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed_client.check_data import check_data
from kernfed_testing.forked import run_module
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.installed import on_path, write_package
from kernfed_testing.methods.installed import STREAMING
from kernfed_testing.places import HEART

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-31337"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_module("kernfed_client", "check-data", *arguments)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "client.toml").write_text('[datasets.heart.train]\npath = "rows.csv"\n')
    (tmp_path / "rows.csv").write_text((HEART / "data" / "va.csv").read_text())
    return tmp_path


def test_the_table_shows_rows_classes_and_columns(site: Path) -> None:
    """The command prints rows, classes and columns of a data set that fits."""
    command = [sys.executable, "-m", "kernfed_client", "check-data", str(HEART / "newton.toml"), "--name", "va"]
    command += ["--config", str(site / "client.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ["va: data set heart fits job heart-newton", "97", "33", "70", "class 1", "oldpeak"]:
        assert part in done.stdout


def test_many_columns_are_not_all_shown(tmp_path: Path) -> None:
    """The table has 40 of them, the target with them, and says how many there are besides."""
    names = [f"x{i}" for i in range(100)]
    lines = [",".join([*names, "y"]), *(",".join([str(i + j) for j in range(101)]) for i in range(8))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "client.toml").write_text('[datasets.default.train]\npath = "rows.csv"\n')
    (tmp_path / "job.toml").write_text(
        'name = "wide"\n[method]\nname = "dkrr"\n[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x[0:100]"]\n'
    )
    done = run(tmp_path / "job.toml", "--config", tmp_path / "client.toml")
    assert (done.returncode, done.stderr) == (0, "")
    shown = [name for name in [*names, "y"] if f" {name} " in done.stdout]
    assert shown == [*names[:39], "y"]
    assert "61 columns before the last are not shown; --json has them all" in done.stdout


def test_a_name_decides_on_test_rows_that_are_drawn_alone(site: Path) -> None:
    """Before enrolment that is noted; not where test rows have a file of their own."""
    note = "not enrolled yet, so test rows are drawn as for a client named 'client'"
    job = site / "job.toml"
    job.write_text(
        (HEART / "local.toml").read_text().replace("test_fraction", 'split = "copies-together"\ntest_fraction')
    )
    drawn = json.loads(run(job, "--config", site / "client.toml", "--json").stdout)
    assert any(line.startswith(note) for line in drawn["notes"])
    assert any("the policy here would refuse this job" in line and "drawn_splits" in line for line in drawn["notes"])
    with (site / "client.toml").open("a") as file:
        file.write('[datasets.heart.test]\npath = "rows.csv"\n')
    given = json.loads(run(job, "--config", site / "client.toml", "--json").stdout)
    assert given["num_test_rows"] == 130
    assert not any(line.startswith(note) for line in given["notes"])


@pytest.mark.parametrize(
    ("client", "rows", "dropped"),
    [("cleveland", 303, 0), ("hungarian", 261, 33), ("switzerland", 45, 77), ("va", 130, 70)],
)
def test_json_of_the_example_hospitals(client: str, rows: int, dropped: int) -> None:
    """The report of each example hospital has its number of rows and plausible ages.

    Of 46 rows of Zurich and Basel one is of a healthy patient. A class is to have 10, so this row is left out.
    """
    done = run(HEART / "local.toml", "--config", HEART / "clients" / f"{client}.toml", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["num_rows"] + report["num_test_rows"] == rows
    assert report["num_dropped_rows"] == dropped
    assert sum(train for train, _ in report["classes"].values()) == report["num_rows"]
    age = report["columns"][0]
    assert age["name"] == "age"
    assert 20 < age["min"] < age["mean"] < age["max"] < 80


def test_bad_data_end_with_3_and_the_place(site: Path) -> None:
    """A wrong cell ends the command with 3 and its place, without its content."""
    rows = (site / "rows.csv").read_text().splitlines()
    rows[6] = f"{SECRET}{rows[6][2:]}"
    (site / "rows.csv").write_text("\n".join(rows))
    done = run(HEART / "newton.toml", "--config", site / "client.toml")
    assert done.returncode == 3
    assert done.stderr.startswith("error: data set heart, train (rows.csv): column 'age', line 7: text")
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr + done.stdout


def test_bad_files_end_with_3_and_the_key(site: Path) -> None:
    """A mistyped key and a missing file end the command with 3 and the remedy."""
    (site / "client.toml").write_text('[datasets.heart.train]\npaht = "rows.csv"\n')
    done = run(HEART / "newton.toml", "--config", site / "client.toml", "--json")
    assert done.returncode == 3
    assert "did you mean 'path'" in done.stderr
    assert json.loads(done.stdout)["error"]["reason"] == "INVALID_CONFIG"
    done = run(site / "nothing.toml", "--config", site / "client.toml")
    assert done.returncode == 3
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refusal_by_policy_is_noted(site: Path) -> None:
    """A job that the policy would refuse is no error; the first line says so, and a note says why."""
    with (site / "client.toml").open("a") as file:
        file.write("[policy]\nmin_rows = 1000\n")
    done = run(HEART / "newton.toml", "--config", site / "client.toml")
    assert done.returncode == 0
    first, _, rest = done.stdout.partition("\n")
    assert "the policy here would refuse job heart-newton" in first
    assert "policy.min_rows" in rest


def test_rows_outside_of_the_jobs_ranges_are_shown(site: Path) -> None:
    """They are counted and told with the column, and are no part of what is described."""
    rows = (site / "rows.csv").read_text().splitlines()
    rows[6] = f"999{rows[6][rows[6].index(',') :]}"
    (site / "rows.csv").write_text("\n".join(rows))
    before = json.loads(run(HEART / "newton.toml", "--config", site / "client.toml", "--json").stdout)
    job = (HEART / "newton.toml").read_text().replace("[data]", "[data]\nranges.age = [18, 120]")
    (site / "job.toml").write_text(job)
    done = run(site / "job.toml", "--config", site / "client.toml", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    cells = [row.split(",") for row in rows[1:]]
    ages = sorted((int(row[0]) for row in cells if all(row)), reverse=True)
    # The limit leaves out ten rows that lack no value, and all that are as old as the last of them.
    num = sum(int(row[0]) >= ages[9] for row in cells)
    assert report["num_outside_rows"] == num > 9
    assert sum(report[k] - before[k] for k in ("num_rows", "num_test_rows", "num_dropped_rows")) == -num
    note = f"column 'age': {num} rows are left out, for the job takes values from 18 to 120 alone"
    assert note in report["notes"]
    assert "left out by data.ranges" in run(site / "job.toml", "--config", site / "client.toml").stdout


def test_rows_that_stand_far_out_are_shown(site: Path) -> None:
    """A mistyped age is told with its column and value, before any job is submitted."""
    rows = (site / "rows.csv").read_text().splitlines()
    rows[6] = f"9999{rows[6][rows[6].index(',') :]}"
    (site / "rows.csv").write_text("\n".join(rows))
    done = run(HEART / "newton.toml", "--config", site / "client.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert any(
        note.startswith("column 'age': a training row stands far out (9999; row 7 of the file)")
        for note in json.loads(done.stdout)["notes"]
    )


def test_a_law_from_outside_needs_its_package_here(site: Path) -> None:
    """Its package has to be installed, and the client file to name it; the check says which of the two is lacking."""
    law = (
        "from kernfed.features.law import Frequencies\nLAW = Frequencies(lambda draws, num, d: draws.normal(num, d))\n"
    )
    points = {"kernfed.features": {"odd": "odd_laws:LAW"}}
    write_package(site / "packages", "odd-laws", points, {"odd_laws.py": law})
    job, config = site / "job.toml", site / "client.toml"
    job.write_text((HEART / "newton.toml").read_text().replace('kernel = "gaussian"', 'law = "odd"'))
    with pytest.raises(ConfigError, match=r"law is 'odd', which no package that is installed here brings"):
        check_data(job, config, "va")
    with on_path(site / "packages"):
        report = check_data(job, config, "va")
        assert report.refused
        assert "odd-laws 1.0 is installed at this client, but policy.plugins does not name it" in " ".join(report.notes)
        config.write_text(config.read_text() + '[policy]\nplugins = ["odd-laws"]\n')
        assert not check_data(job, config, "va").refused


def test_steps_that_the_policy_refuses_are_named(site: Path) -> None:
    """By the kinds that the method's steps send; a policy as it is by default has nothing to tell."""
    checked = json.loads(run(HEART / "personalise.toml", "--config", site / "client.toml", "--json").stdout)
    assert not [note for note in checked["notes"] if "policy.allow" in note]
    with (site / "client.toml").open("a") as file:
        file.write('[policy]\nallow = ["summary", "mean_embedding", "gradient", "metric"]\n')
    checked = json.loads(run(HEART / "personalise.toml", "--config", site / "client.toml", "--json").stdout)
    told = [note for note in checked["notes"] if note.startswith("policy.allow lacks sufficient_statistic")]
    assert len(told) == 1
    assert "refuses personalise.statistics, personalise.factor, personalise.project, where" in told[0]


@pytest.mark.parametrize("method", STREAMING[:1])
@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "x,y\n1,2\n2,\n3,4\nfour,5\n",
            "the stream has 2 rows that can be used now; 1 left out: a value is missing; 1",
        ),
        ("z,y\n1,2\n", "the stream cannot be read"),
    ],
)
def test_the_streams_folder_is_read(tmp_path: Path, method: str, lines: str, told: str) -> None:
    """For a method on streams; what would be left out is counted by kind."""
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{i},{2 * i}\n" for i in range(20)))
    (tmp_path / "grows").mkdir()
    (tmp_path / "grows" / "a.csv").write_text(lines)
    (tmp_path / "client.toml").write_text(
        '[datasets.default.train]\npath = "rows.csv"\n[datasets.default.stream]\nsource = "follow"\npath = "grows"\n'
    )
    data = '[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x"]\n'
    (tmp_path / "job.toml").write_text(f'name = "s"\n[method]\nname = "{method}"\n{data}')
    done = run(tmp_path / "job.toml", "--config", tmp_path / "client.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert [note for note in json.loads(done.stdout)["notes"] if note.startswith(told)]


def test_columns_of_few_values_are_told_before_a_job(site: Path) -> None:
    """Random features of few columns of a hospital would be refused, with the remedy; of ten not. It has few women."""
    job = site / "job.toml"
    text = (HEART / "newton.toml").read_text()
    before = next(line for line in text.splitlines() if line.startswith("features = "))
    notes = {}
    for columns in (before, 'features = ["age", "sex", "cp"]'):
        job.write_text(text.replace(before, columns))
        done = run(job, "--config", site / "client.toml", "--json", "--name", "va")
        notes[columns] = [note for note in json.loads(done.stdout)["notes"] if "policy.few_values" in note]
    assert [len(found) for found in notes.values()] == [0, 1]
    assert "columns 'age', 'cp': so few values" in notes['features = ["age", "sex", "cp"]'][0]


def test_what_may_leave_in_secure_sums_alone_is_foreseen(site: Path) -> None:
    """A job whose steps send it in the clear would be refused, with the key; so would one whose steps lack a kind."""
    config = site / "client.toml"
    text = config.read_text()
    for policy, why in (
        ("[policy.secure_sum]\nrequire = true\n", "policy.secure_sum.require lets no gradient leave in the clear: "),
        ('[policy]\nallow = ["summary", "mean_embedding", "metric"]\n', "policy.allow lacks gradient: "),
    ):
        config.write_text(text + policy)
        checked = json.loads(run(HEART / "newton.toml", "--config", config, "--json").stdout)
        assert checked["refused"]
        assert [note for note in checked["notes"] if note.startswith(why)]
