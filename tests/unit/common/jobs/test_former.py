"""Jobs that begin from another one's artifacts, in a simulation: its weights, and all that its clients agreed on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file

from kernfed.artifact_names import CHECKPOINT
from kernfed.errors import ConfigError, DataError
from kernfed.federation.events import EventKind
from kernfed.jobs.former import FORMAT, Former, former_of
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed.methods.registry import METHODS
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_simulation.federation import from_rows
from kernfed_simulation.run import Simulated, simulate
from kernfed_testing.in_process import regression_rows

ROWS = regression_rows({"a": 60, "b": 40}, shift=0.3)
OTHERS = regression_rows({"a": 50, "b": 50}, shift=1.0, seed=7)
LEARNERS: dict[str, dict[str, Any]] = {
    "online": {},
    "ofskl": {"learning_rate": 0.1},
    "ofmkl-avg": {"learning_rate": 0.1},
    "vm-kofl": {"learning_rate": 0.1, "weight_learning_rate": 0.1},
    "em-kofl": {"learning_rate": 0.1, "weight_learning_rate": 0.1},
    "perfedavg": {"hidden": 4},
}
STREAMS = {name: settings for name, settings in LEARNERS.items() if name in METHODS}


FACTS: dict[str, Any] = {"format": FORMAT, "job_id": "weeks-a", "method": "online", "round_num": 3, "plan": {}}
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "text": b'"former"',
    "deep": b"[" * 100_000,
    "deep plan": json.dumps(FACTS).replace("{}", '{"a":' * 50_000 + "1" + "}" * 50_000).encode(),
    **{
        f"{key} {value!r:.20}": json.dumps({**FACTS, key: value}).encode()
        for key, value in (
            ("round_num", float("inf")),
            ("round_num", 10**300),
            ("round_num", -1),
            ("job_id", "\x1b[2J"),
            ("job_id", "x" * 300),
            ("plan", 3),
            *(
                ("plan", {table: value})
                for table in ("method", "data", "features")
                for value in (3, "x", None, [["a", 1]])
            ),
        )
    },
}


@pytest.mark.redteam
@pytest.mark.parametrize("facts", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_no_job_left(facts: bytes) -> None:
    """It is refused with the remedy, whatever an operator uploads as the job that another begins from."""
    content = save({"former": np.frombuffer(facts, np.uint8)})
    with pytest.raises(DataError, match="fetch the job's artifacts again"):
        Former.of_bytes(content)


def job_text(method: str, start_from: str = "", *, seed: int = 5, features: str = "", **settings: Any) -> str:
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    table = "" if method in STREAMS else f"[features]\nnum_frequencies = 20\n{features}"
    return f"""
name = "test"
seed = {seed}
start_from = {json.dumps(start_from)}
report = false
[method]
name = "{method}"
{lines}
[data]
task = "regression"
target = "y"
features = ["x0", "x1", "x2"]
{table}
"""


def run(folder: Path, name: str, text: str, rows: object = ROWS) -> Simulated:
    """A job, whose artifacts are in `folder/name`."""
    job, text, files = attach_files(parse_job(text), text, folder)
    done = simulate(job, from_rows(rows, (), folder / "state"), text=text, files=files, out=folder / name)  # type: ignore[arg-type]  # a dict of rows
    assert done.error is None, done.error
    return done


def error(folder: Path, text: str) -> str:
    """What a job is refused for."""
    job, text, files = attach_files(parse_job(text), text, folder)
    return str(simulate(job, from_rows(ROWS, (), folder / "state"), text=text, files=files).error)


def notes(done: Simulated) -> str:
    return "\n".join(e.event.message for e in done.events if e.event.kind is EventKind.NOTE)


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (1e4, "The job began with what job simulation left, which may be damaged"),
        (1e20, "which may be damaged"),
        (1e150, "weights beyond 1e+100; begin anew"),
    ],
)
def test_absurd_weights_of_the_former_job_are_told_of(tmp_path: Path, factor: float, why: str) -> None:
    """Finite all the same: in the error, each with what to do."""
    run(tmp_path, "five", job_text("fedavg", rounds=2))
    arrays = load_file(tmp_path / "five" / CHECKPOINT)
    save_file(arrays | {"weights": arrays["weights"] * factor}, tmp_path / "five" / CHECKPOINT)
    assert why in error(tmp_path, job_text("fedavg", "five", rounds=2))


def test_federated_averaging_goes_on_from_its_own_model(tmp_path: Path) -> None:
    """Five rounds and five more are ten: weights, scales and features are those of the first job."""
    ten = run(tmp_path, "ten", job_text("fedavg", rounds=10))
    run(tmp_path, "five", job_text("fedavg", rounds=5))
    more = run(tmp_path, "more", job_text("fedavg", "five", rounds=5))
    assert ten.model is not None
    assert more.model is not None
    np.testing.assert_allclose(more.model.weights, ten.model.weights, rtol=1e-10, atol=1e-12)
    assert "begins with the model of job" in notes(more)
    assert json.loads((tmp_path / "more" / "job.json").read_text())["settings"]["start_from"] == "five"


def test_what_was_agreed_on_is_taken_over(tmp_path: Path) -> None:
    """On other rows and with another seed the job has the first one's scales, lengthscale and frequencies."""
    first = run(tmp_path, "first", job_text("fedavg", rounds=3)).model
    alone = run(tmp_path, "alone", job_text("newton", seed=6, rounds=1), OTHERS).model
    taken = run(tmp_path, "taken", job_text("newton", "first", seed=6, rounds=1), OTHERS).model
    assert first is not None
    assert alone is not None
    assert taken is not None
    for name in ("mean", "deviation", "feature_mean", "target_mean"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(first, name))
    assert taken.spec == first.spec != alone.spec


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "loss"),
    [
        *((method, {}) for method in ("newton", "fedavg", "fedprox")),
        *((method, {"loss": "squared"}) for method in ("newton", "fedavg", "fedprox", "fedsophia", "fednew")),
    ],
)
def test_every_method_with_a_global_model_begins_from_one(tmp_path: Path, method: str, loss: dict[str, Any]) -> None:
    """A job without a chance to move far is near the model that it began with, and not near zero."""
    run(tmp_path, "first", job_text("newton", rounds=8, **loss))
    weights = load_file(tmp_path / "first" / CHECKPOINT)["weights"]
    still: dict[str, Any] = {"newton": {}, "fednew": {"step_size": 1e-6}}.get(method, {"learning_rate": 1e-9})
    if method == "fedprox":
        still = {"proximal": 1e6} if not loss else {"learning_rate": 1e-9, "proximal": 0.1}
    done = run(tmp_path, "next", job_text(method, "first", rounds=1, **loss, **still))
    left = load_file(tmp_path / "next" / CHECKPOINT)["weights"]
    assert np.linalg.norm(left - weights) < 0.2 * np.linalg.norm(weights)
    assert "begins with the model of job" in notes(done)


@pytest.mark.parametrize("method", STREAMS)
def test_parameters_of_streams_go_on(tmp_path: Path, method: str) -> None:
    """What all clients share goes on; a simulation keeps nothing at clients, which then begin anew, as is told."""
    small = {"metrics_every": 10, **STREAMS[method]} | ({} if method == "perfedavg" else {"num_frequencies": 4})
    run(tmp_path, "first", job_text(method, rounds=15, **small))
    done = run(tmp_path, "more", job_text(method, "first", rounds=18, **small))
    assert done.info.round_num == 18
    assert "goes on from job" in notes(done)
    assert "a has nothing left of job" in notes(done)
    name, file = ("weights", CHECKPOINT) if method == "perfedavg" else ("theta", "online.safetensors")
    one, two = (load_file(tmp_path / job / file) for job in ("first", "more"))
    assert one[name].shape == two[name].shape
    assert 0 < np.linalg.norm(two[name] - one[name]) < np.linalg.norm(one[name])


def test_what_differs_is_named(tmp_path: Path) -> None:
    """A former job of another kind, without a state, or none at all is refused before anything is asked."""
    run(tmp_path, "first", job_text("fedavg", rounds=2))
    for text, said in (
        (
            job_text("newton", "first", features='kernel = "laplace"'),
            r"features.kernel = 'laplace' \(there 'gaussian'\)",
        ),
        (job_text("newton", "first", loss="squared"), r"method.loss = 'squared'"),
        (job_text("newton", "nothing"), "start_from names their folder"),
        (job_text("dkrr", "first"), "start_from belongs to .*fedavg"),
        (job_text("personalise", "first"), "start_from belongs to"),
        (job_text("fedavg", "first", begin="dkrr"), "fedavg begins where start_from says; remove method.begin"),
    ):
        with pytest.raises((ConfigError, DataError), match=said):
            run(tmp_path, "next", text)


@pytest.mark.skipif("online" not in STREAMS, reason="its room was taken away")
def test_what_differs_on_streams_is_named(tmp_path: Path) -> None:
    """A former job of another method, features or seed, or one that ended behind the last round, is refused."""
    run(tmp_path, "first", job_text("fedavg", rounds=2))
    run(tmp_path, "stream", job_text("online", rounds=4, num_frequencies=4))
    for text, said in (
        (job_text("online", "first"), "is of method fedavg.*name one of the same method"),
        (job_text("online", "stream", num_frequencies=5), r"method.num_frequencies = 5 \(there 4\)"),
        (job_text("online", "stream", num_frequencies=4, seed=6), r"seed = 6 \(there 5\)"),
        (job_text("online", "stream", num_frequencies=4, rounds=4), "ended behind round 4"),
    ):
        with pytest.raises((ConfigError, DataError), match=said):
            run(tmp_path, "next", text)


@pytest.mark.parametrize("method", [name for name in ("newton", "online") if name in METHODS])
def test_absurd_values_of_a_former_job_are_refused(tmp_path: Path, method: str) -> None:
    """Finite numbers that no rows have, and features that nobody draws: what, of which job, and what to do."""
    first = "online" if method == "online" else "fedavg"
    settings: dict[str, Any] = {"num_frequencies": 4} if method == "online" else {}
    run(tmp_path, "first", job_text(first, rounds=2, **settings))
    path = tmp_path / "first" / CHECKPOINT
    arrays = load_file(path)
    wrong = [("deviation", 1e300, "deviation holds"), ("mean", np.full(9, 1.0), r"mean has shape \(9,\)")]
    if method == "newton":
        wrong += [("target_mean", 1e200, "target_mean holds")]
    for name, value, said in wrong:
        key = f"run.agreement.{name}"
        changed = value if isinstance(value, np.ndarray) else np.full_like(arrays[key], value)
        save_file({**arrays, key: changed}, path)
        text = job_text(method, "first", **settings, rounds=4)
        assert re.search(rf"start_from: job .*: {said}.*; fetch the job's artifacts again", error(tmp_path, text))
    if method == "newton":
        facts = arrays["run.agreement.facts"].tobytes()
        agreement = Agreement.of_checkpoint(arrays)
        assert agreement is not None
        none = facts.replace(agreement.fingerprint.encode(), b"0" * 64)
        save_file({**arrays, "run.agreement.facts": np.frombuffer(none, np.uint8)}, path)
        told = error(tmp_path, job_text(method, "first", rounds=4))
        assert "fingerprint '000000000000', and this release of kernfed draws" in told


def test_the_job_file_says_which_job_it_is(tmp_path: Path) -> None:
    """Its id is written at submission, where the operator signs it; another one is refused."""
    run(tmp_path, "first", job_text("newton"))
    job, text, files = attach_files(parse_job(job_text("newton", "first")), job_text("newton", "first"), tmp_path)
    assert job.former is not None
    assert job.former.job_id == former_of(job, {"first": files[job.files["first"]]}).job_id  # type: ignore[union-attr]  # it names one
    other = parse_job(text.replace(job.former.job_id, "other-aaaaaaaa"))
    with pytest.raises(ConfigError, match="says other-aaaaaaaa, and start_from leads to"):
        former_of(other, {"first": files[job.files["first"]]})


def test_a_state_that_is_no_state_is_refused(tmp_path: Path) -> None:
    """Numbers that are not finite, and a file that is none, are told of with the remedy."""
    run(tmp_path, "first", job_text("fedavg", rounds=2))
    path = tmp_path / "first" / CHECKPOINT
    arrays = load_file(path)
    save_file({**arrays, "weights": arrays["weights"] * np.nan}, path)
    job, text, files = attach_files(parse_job(job_text("newton", "first")), job_text("newton", "first"), tmp_path)
    done = simulate(job, from_rows(ROWS, (), tmp_path / "state"), text=text, files=files)
    assert "not finite" in str(done.error)
    path.write_bytes(b"no state")
    with pytest.raises(DataError, match="kernfed job fetch"):
        run(tmp_path, "next", job_text("newton", "first"))


def test_a_fault_of_the_method_is_not_said_to_be_of_the_former_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that begins with a sound model, and fails for another reason, fails by that."""

    async def fails(*_: object) -> None:
        raise ValueError("of its own")

    run(tmp_path, "first", job_text("fedavg", rounds=2))
    broken = {**WORKFLOWS, "fedavg": replace(WORKFLOWS["fedavg"], run=fails)}
    monkeypatch.setattr("kernfed_server.jobs.execute.WORKFLOWS", broken)
    with pytest.raises(ValueError, match="of its own"):
        run(tmp_path, "next", job_text("fedavg", "first", rounds=2))


@pytest.mark.slow
@pytest.mark.redteam
@pytest.mark.parametrize(
    ("method", "array", "damage"),
    [
        damaged
        for damaged in (
            ("online", "traffic", np.zeros(5)),
            ("online", "num_rows", None),
            ("ofskl", "held", np.full(9, 255, np.uint8)),
            ("perfedavg", "counted", np.zeros(0, np.uint8)),
            ("perfedavg", "num_rows", np.zeros((2, 3))),
            ("perfedavg", "run.agreement.mean", None),
            ("fedavg", "run.agreement.target_mean", None),
        )
        if damaged[0] in METHODS
    ],
)
def test_a_state_that_was_made_up(tmp_path: Path, method: str, array: str, damage: Any) -> None:
    """A job that begins from arrays that no job leaves ends before its first round, with the remedy."""
    settings = STREAMS.get(method, {})
    run(tmp_path, "first", job_text(method, rounds=2, **settings))
    kept = load_file(tmp_path / "first" / CHECKPOINT)
    del kept[array]
    save_file(kept if damage is None else {**kept, array: damage}, tmp_path / "first" / CHECKPOINT)
    text = job_text(method, "first", rounds=4, **settings)
    job, text, files = attach_files(parse_job(text), text, tmp_path)
    done = simulate(job, from_rows(ROWS, (), tmp_path / "state"), text=text, files=files, out=tmp_path / "second")
    assert isinstance(done.error, DataError)
    assert re.search(r"start_from: what job \S+ left cannot be gone on from .*kernfed job fetch", str(done.error))
