"""Tests of `kernfed_simulation.sweep` and `kernfed-simulate --sweep`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.jobs.job_file import load_job
from kernfed.jobs.sweeps.grid import Outcome, Run, asked, best, parse_axis, table, trials
from kernfed.jobs.sweeps.section import SweepSection, load_swept
from kernfed_simulation.federation import from_rows
from kernfed_simulation.run import simulate
from kernfed_simulation.sweep import run_sweep
from kernfed_testing.commands import run_command
from kernfed_testing.in_process import label_skewed_rows, make_job
from kernfed_testing.places import HEART


def test_axes_are_read_as_toml() -> None:
    """Numbers, booleans and words, each of its kind."""
    axis = parse_axis("damping = 0.001, 1, auto,true")
    assert (axis.key, axis.values) == ("damping", (0.001, 1, "auto", True))
    assert parse_axis("features.lengthscale=2,5").key == "features.lengthscale"
    for text in ("damping", "damping=", "=3", "a b=3", "a..b=3"):
        with pytest.raises(ConfigError, match="write KEY=VALUE"):
            parse_axis(text)


def test_combinations_are_checked_before_anything_runs() -> None:
    """Unknown keys, values out of range and doubled keys are refused; the first axis varies slowest."""
    job = make_job("fedavg", task="classification", rounds=3)
    found = trials(job, [parse_axis("learning_rate=0.1,0.2"), parse_axis("rounds=1,2")], validation=0.2)
    assert [list(trial.settings.values()) for trial in found] == [[0.1, 1], [0.1, 2], [0.2, 1], [0.2, 2]]
    assert [trial.chosen.method.model_dump()["rounds"] for trial in found] == [1, 2, 1, 2]
    for texts, message in (
        (["nonsense=1"], "--sweep nonsense 1: method.nonsense: unknown key"),
        (["rounds=0"], "rounds 0"),
        (["rounds=1", "method.rounds=2"], "twice"),
        (["damping=0.1"], "damping 0.1"),
        (["nowhere.key=1"], "no such table"),
        (["test_fraction=0.1,0.3"], "decides which rows rank"),
        (["data.validation_fraction=0.1"], "decides which rows rank"),
        (["rounds=" + ",".join(map(str, range(1, 1002)))], "1001 runs"),
    ):
        with pytest.raises(ConfigError, match=message):
            trials(job, [parse_axis(text) for text in texts], validation=0.2)


def test_any_key_of_the_job_is_an_axis() -> None:
    """A bare key is one of the method, or of the one table that has it; validation rows are of the trials alone."""
    job = make_job("newton", rounds=3)
    found = trials(job, [parse_axis("lengthscale=2,5"), parse_axis("data.scales=moments")], validation=0.2, repeats=2)
    assert [trial.chosen.features.lengthscale for trial in found] == [2, 5]
    assert [run.seed for run in found[0].jobs] == [job.seed, job.seed + 1]
    data, chosen = found[0].jobs[0].data, found[0].chosen.data
    assert data is not None
    assert chosen is not None
    assert (data.scales, data.validation_fraction) == ("moments", 0.2)
    assert (chosen.scales, chosen.validation_fraction) == ("moments", 0.0)
    methods = trials(job, [parse_axis("name=newton,fedavg")], validation=0.0)
    assert [trial.chosen.method.name for trial in methods] == ["newton", "fedavg"]


def test_a_method_that_is_made_for_the_test_rows_says_so() -> None:
    """Validation rows cannot stand for the rows whose distribution `reweight` looks at."""
    job = make_job("reweight", scope="own")
    with pytest.raises(ConfigError, match="--validation: method reweight is made for the test rows"):
        trials(job, [parse_axis("ridge=0.1,1")], validation=0.2)
    assert len(trials(job, [parse_axis("ridge=0.1,1")], validation=0.0)) == 2


@pytest.mark.parametrize(("metric", "place"), [("auc", 1), ("mse", 0)])
def test_the_best_is_by_the_mean_in_the_metrics_direction(metric: str, place: int) -> None:
    """More is better or less is, by metric; one with a seed that failed is none."""

    def outcome(key: int, *scores: float, error: str = "") -> Outcome:
        return Outcome({"ridge": key}, tuple(Run({metric: score}, error=error) for score in scores))

    found = [outcome(1, 0.1, 0.3), outcome(2, 0.2, 0.6), outcome(3, 0.0, 0.9, error="DIVERGED")]
    assert best(found, metric) == place
    columns, rows = table(found, metric, place)
    assert columns[:3] == ["ridge", metric, "±"]
    assert rows[0][:3] == ["1", "0.2000", "0.1000"]
    assert [row[-1] for row in rows] == ["best" if i == place else "" for i in range(2)] + ["DIVERGED"]
    assert best([outcome(1, 0.1, error="DIVERGED")], metric) is None


def test_a_run_that_diverges_is_an_outcome_too(tmp_path: Path) -> None:
    """Its reason stands in the table, beside the others' scores."""
    job = make_job(
        "newton",
        task="classification",
        num_columns=6,
        data="classes = ['a', 'b', 'c']",
        features='kernel = "linear"',
        loss="cross-entropy",
        step="paper",
        rounds=20,
        ridge=1e-6,
        solver="exact",
    )
    runs = trials(job, [parse_axis("damping=1e-6,1.0"), parse_axis("step_size=1.0")], validation=0.0)
    outcomes = run_sweep(
        runs, lambda chosen: simulate(chosen, from_rows(label_skewed_rows(), ("a", "b", "c"), tmp_path)), "accuracy"
    )
    assert [o.error for o in outcomes] == ["DIVERGED", ""]
    columns, rows = table(outcomes, "accuracy", None)
    assert columns[:3] == ["damping", "step_size", "accuracy"]
    assert rows[0][-1] == "DIVERGED"
    assert float(rows[1][2]) > 0.5
    assert len(outcomes[1].runs[0].curve) == 20


@pytest.mark.slow
async def test_the_command_prints_a_table_and_writes_a_plot(tmp_path: Path) -> None:
    """On the example's hospitals: one row a combination, JSON and PNG in the folder."""
    files = [arg for site in ("cleveland", "va") for arg in ("--client-file", str(HEART / "clients" / f"{site}.toml"))]
    job = tmp_path / "job.toml"
    job.write_text((HEART / "head.toml").read_text().replace('"hungarian", "switzerland", ', ""))
    sweep = ["--sweep", "damping=0.1,auto", "--sweep", "solver=cg,exact", "--sweep", "rounds=2"]
    done = await run_command("kernfed-simulate", str(job), *files, *sweep, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if line.split()[:1] in (["0.1"], ["auto"])]) == 4
    facts = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert facts["measured"] == "on validation rows"
    assert [f["settings"]["solver"] for f in facts["trials"]] == ["cg", "exact", "cg", "exact"]
    assert all(0.5 < f["auc"] <= 1 for f in facts["trials"])
    top = max(facts["trials"], key=lambda f: f["auc"])
    assert facts["chosen"]["settings"] == top["settings"]
    assert facts["chosen"]["scores"]["auc"] != top["auc"]
    assert "on test rows, which had no say" in done.stderr
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_file_says_what_options_add_to_and_override() -> None:
    """One of the options takes the place of the same key; without keys the test rows measure; nothing is no sweep."""
    section = SweepSection.model_validate({"keys": {"ridge": [1, 2], "features": {"lengthscale": [2]}}, "repeats": 3})
    both = asked(section, ["ridge=5", "rounds=7"], None, None)
    assert both is not None
    assert [(axis.key, axis.values) for axis in both[0]] == [
        ("ridge", (5,)),
        ("features.lengthscale", (2,)),
        ("rounds", (7,)),
    ]
    assert both[1:] == (0.2, 3)
    assert asked(SweepSection(validation=0.1, repeats=2), [], None, 4) == ([], 0.1, 4)
    assert asked(None, [], None, 5) == ([], 0.0, 5)
    assert asked(None, [], None, None) is None
    for axes, validation, says in ((["a=1", "a=2"], None, "twice"), ([], 0.3, "goes with --sweep")):
        with pytest.raises(ConfigError, match=says):
            asked(None, axes, validation, None)


def test_repeats_alone_are_one_combination_of_several_seeds() -> None:
    """It is the job itself, on its test rows, and its name in the table is the metric."""
    job = make_job("newton", rounds=3)
    (trial,) = trials(job, [], validation=0.0, repeats=3)
    assert [run.seed for run in trial.jobs] == [job.seed, job.seed + 1, job.seed + 2]
    assert trial.jobs[0] == trial.chosen
    runs = tuple(Run({"auc": score}) for score in (0.7, 0.8, 0.9))
    columns, rows = table([Outcome({}, runs)], "auc", None)
    assert (columns[:2], rows[0][:2]) == (["auc", "±"], ["0.8000", "0.0577"])


def test_a_file_with_a_sweep_is_several_jobs(tmp_path: Path) -> None:
    """Its job is read without the table, which is checked; whoever submits one job is told what runs it."""
    path = tmp_path / "job.toml"
    text = 'name = "t"\n[method]\nname = "local"\n[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x"]\n'
    path.write_text(text)
    assert load_swept(path)[2] is None
    path.write_text(f"{text}[sweep]\nkeys.ridge = [0.1, 1]\nkeys.features.lengthscale = [2]\n")
    job, _, section = load_swept(path)
    assert job.name == "t"
    assert section is not None
    assert section.keys == {"ridge": [0.1, 1], "features.lengthscale": [2]}
    with pytest.raises(ConfigError, match="kernfed job sweep"):
        load_job(path)
    for more, says in (("keys.ridge = []", "ridge has no values"), ("repeat = 2", r"\[sweep\]: repeat: unknown key")):
        path.write_text(f"{text}[sweep]\n{more}\n")
        with pytest.raises(ConfigError, match=says):
            load_swept(path)
