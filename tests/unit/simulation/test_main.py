"""`kernfed-simulate` as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from kernfed.jobs.metrics_file import read_metrics
from kernfed.methods.registry import METHODS
from kernfed.models.global_model import load_model
from kernfed_simulation.__main__ import main
from kernfed_testing.forked import run_module
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.methods.installed import STREAMING
from kernfed_testing.places import HEART

pytestmark = pytest.mark.slow

SITES = ("cleveland", "hungarian", "switzerland", "va")
FILES = [arg for site in SITES for arg in ("--client-file", str(HEART / "clients" / f"{site}.toml"))]


def test_heart_prints_a_table_and_leaves_model_and_metrics(tmp_path: Path) -> None:
    """A row per hospital, AUC as known for these data, files as from a coordinator."""
    command = [sys.executable, "-m", "kernfed_simulation", str(HEART / "newton.toml"), *FILES, "--out", "results"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table, scores = done.stdout.split("\n\n")
    assert scores.startswith("what the scores are worth (95 % intervals), over 4 of 4 clients")
    lines = [line.split() for line in table.splitlines()]
    assert lines[1] == ["client", "local", "global", "central"]
    assert [line[0] for line in lines[2:]] == [*SITES, "pooled"]
    auc = {line[0]: line[1:] for line in lines[2:]}
    assert auc["switzerland"] == ["-", "-", "-"]  # 98 % have the disease: one class among the test rows
    assert all(0.8 < float(value) < 0.95 for value in auc["pooled"] + auc["cleveland"])
    assert auc["pooled"][1] == auc["pooled"][2]  # newton reaches the pooled solution
    assert "round 1: " in done.stderr
    assert "end: arrived: the relative distance to the pooled solution is at most" in done.stderr
    results = tmp_path / "results"
    assert load_model(results).classes == ("0", "1")
    metrics = read_metrics(results / "metrics.jsonl")
    assert {line.model for line in metrics} == {"local", "global", "central", "training"}
    assert {"job.json", "job.toml", "metrics.csv"} <= {p.name for p in results.iterdir()}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results"]


def test_json_holds_the_same_numbers_and_own_models_are_kept_apart(tmp_path: Path) -> None:
    """With --json only JSON is on stdout; `local` leaves one model per client and no global one."""
    done = run_module("kernfed_simulation", HEART / "local.toml", *FILES, "--json", "--out", "results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["state"] == "succeeded"
    assert set(found["clients"]) == set(SITES)
    assert set(found["pooled"]) == {"local", "central"}
    assert not (tmp_path / "results" / "model.safetensors").exists()
    assert load_model(tmp_path / "results" / "clients" / "va").job["client"] == "va"


def test_workers_print_what_one_process_prints(tmp_path: Path) -> None:
    """With --engine processes the same numbers come, to the last digit, and clients' own models are kept."""
    of_workers = ("--engine", "processes", "--workers", 2, "--out", "results")
    one, two = (
        run_module("kernfed_simulation", HEART / "local.toml", *FILES, "--json", *more, cwd=tmp_path)
        for more in ((), of_workers)
    )
    assert two.returncode == 0, two.stderr
    assert json.loads(two.stdout) == {**json.loads(one.stdout), "out": "results"}
    assert load_model(tmp_path / "results" / "clients" / "va").job["client"] == "va"


def test_one_file_is_dealt_out(tmp_path: Path) -> None:
    """--data with --partition and --clients needs no client files, and the cohort of the job does not matter."""
    data = HEART / "data" / "cleveland.csv"
    dealt = ("--data", data, "--partition", "dirichlet:0.5", "--clients", 3)
    done = run_module("kernfed_simulation", HEART / "dkrr.toml", *dealt, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()[2:]] == [
        "client-01",
        "client-02",
        "client-03",
        "pooled",
    ]


@pytest.mark.parametrize("method", STREAMING[:1])
def test_a_stream_of_two_classes_has_tables_of_what_can_be_measured(tmp_path: Path, method: str) -> None:
    """Accuracy and log-loss of predictions made before learning, with what each client reaches alone."""
    plan = (HEART / "dkrr.toml").read_text()
    start = plan.index("[method]")
    rest = plan[plan.index("\n[", start) :] if "\n[" in plan[start:] else ""
    text = (
        plan[:start] + f'[method]\nname = "{method}"\nbatch_rows = 10\nnum_frequencies = 5\n' + without_features(rest)
    )
    (tmp_path / "stream.toml").write_text(text)
    dealt = ("--data", HEART / "data" / "cleveland.csv", "--partition", "iid", "--clients", 3)
    done = run_module("kernfed_simulation", tmp_path / "stream.toml", *dealt, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    titles = [line.strip() for line in lines if "before learning" in line]
    assert titles == [f"{metric} of predictions made before learning" for metric in ("accuracy", "log_loss")]
    assert "test rows" not in done.stdout
    tables = [line.split() for line in lines if line.startswith(("client-", "pooled"))]
    assert len(tables) == 8
    assert all(0.0 < float(value) < 3.0 for row in tables for value in row[1:])
    assert [line.split() for line in lines if line.startswith("client ")] == [["client", "local", "personal"]] * 2


def without_features(text: str) -> str:
    """A job file's tables without [features], and without keys that streams do not use."""
    parts = [part for part in text.split("\n[") if not part.startswith("features]")]
    return "\n".join(line for line in "\n[".join(parts).splitlines() if not line.startswith("test_fraction"))


def test_a_job_without_a_report_leaves_none(tmp_path: Path) -> None:
    """`report = false` acts as at a coordinator, and the record lists the settings that act and no others."""
    job = tmp_path / "job.toml"
    job.write_text("report = false\n" + (HEART / "local.toml").read_text(encoding="utf-8"), encoding="utf-8")
    done = run_module("kernfed_simulation", job, *FILES, "--out", "results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    left = {p.name for p in (tmp_path / "results").iterdir()}
    assert {"job.json", "metrics.csv"} <= left
    assert "report.html" not in left
    record = json.loads((tmp_path / "results" / "job.json").read_text(encoding="utf-8"))
    assert (record["num_rounds"], record["rounds_closed"]) == (0, 1)  # the method has no number of rounds to be out of
    settings = record["settings"]
    assert settings["report"] is False
    assert "evaluate_every" not in settings


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["missing.toml", *FILES], 3, "missing.toml: no such file"),
        ([str(HEART / "newton.toml")], 3, "give either --data with --partition, or a --client-file"),
        ([str(HEART / "newton.toml"), "--data", "x.csv"], 3, "--data x.csv: say with --partition how its rows"),
        ([str(HEART / "newton.toml"), "--clients", "2"], 3, "--clients needs --data: give either"),
        ([str(HEART / "newton.toml"), *FILES, "--partition", "iid"], 3, "--partition is not for --client-file"),
        ([str(HEART / "newton.toml"), "--data", "x.csv", "--partition", "iid"], 3, "--clients: say how many"),
        (
            [str(HEART / "newton.toml"), "--data", "x.csv", "--partition", "column:site", "--clients", "2"],
            3,
            "--clients: leave it out",
        ),
        ([str(HEART / "newton.toml"), "--data", "x.csv", "--partition", "odd", "--clients", "2"], 3, "--partition odd"),
        ([str(HEART / "newton.toml"), "--data", "x.csv", "--partition", "iid", "--clients", "2"], 3, "no such file"),
        ([str(HEART / "newton.toml"), "--data", "x.csv", "--partition", "iid", "--clients", "0"], 3, "--clients is 0"),
        ([str(HEART / "newton.toml"), *FILES, "--out", "."], 3, "--out . exists"),
        ([str(HEART / "newton.toml"), *FILES, "--workers", "2"], 3, "--workers is for --engine processes"),
        (
            [str(HEART / "newton.toml"), *FILES, "--engine", "processes", "--sweep", "ridge=0.1,1"],
            3,
            "--sweep runs its jobs in one process",
        ),
        ([str(HEART / "newton.toml"), *FILES[:2]], 3, "cohort.clients names hungarian"),
        ([], 2, "Missing argument"),
    ],
)
def test_wrong_use_is_one_clear_message_and_an_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    code: int,
    message: str,
) -> None:
    """No traceback; 2 for usage, 3 for configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kernfed-simulate", *args])
    try:
        with pytest.raises(SystemExit) as stopped:
            main()
    finally:
        structlog.reset_defaults()
    shown = capsys.readouterr()
    assert stopped.value.code == code, shown.err
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def statistics_of_hearts(folder: Path, method: str) -> list[str | Path]:
    """A job of a method that leaves no model or no scores, and the options that deal it the rows of a hospital."""
    job = folder / "job.toml"
    job.write_text(
        f'name = "x"\n[method]\nname = "{method}"\n[data]\ntask = "binary"\ntarget = "disease"\n'
        'features = ["age", "sex"]\nmissing = "drop-rows"\n'
    )
    return [job, "--data", HEART / "data/cleveland.csv", "--partition", "iid", "--clients", "2"]


@pytest.mark.skipif("describe" not in METHODS, reason="its room was taken away")
def test_what_a_job_without_a_model_found_is_printed(tmp_path: Path) -> None:
    """Statistics are a table on stdout, and under their name in JSON; there is no model to sweep over."""
    arguments = statistics_of_hearts(tmp_path, "describe")
    done = run_module("kernfed_simulation", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "statistics of the columns" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == ["age", "sex", "disease"]
    found = json.loads(run_module("kernfed_simulation", *arguments, "--json", cwd=tmp_path).stdout)
    assert [column["rows"] for column in found["describe"]["pooled"]] == [303, 303, 303]
    swept = run_module("kernfed_simulation", *arguments, "--sweep", "num_bins=5,10", cwd=tmp_path)
    assert swept.returncode == 3
    assert "leaves none" in swept.stderr


@pytest.mark.skipif("glm" not in METHODS, reason="its room was taken away")
def test_coefficients_are_printed(tmp_path: Path) -> None:
    """They are what the method is for, and there are no test rows, so no scores stand above them."""
    arguments = statistics_of_hearts(tmp_path, "glm")
    done = run_module("kernfed_simulation", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "coefficients; Family binomial" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == ["(intercept)", "age", "sex"]
