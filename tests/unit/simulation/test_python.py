"""Tests of `kernfed_simulation.python`: `kernfed.simulate`, and the page of docs about Python."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernfed
from kernfed.errors import ConfigError, DataError, KernfedError, UnknownArtifactError, UnknownClientError
from kernfed_simulation import python
from kernfed_testing.places import ROOT

PAGE = ROOT / "docs" / "python.md"
JOB = kernfed.Job(
    name="small",
    method=kernfed.Newton(ridge=0.1, rounds=3),
    data=kernfed.Data(task="binary", target="ill", features=["a", "b"]),
    features=kernfed.Features(kernel="linear"),
    report=False,
)


def frame(name: str, num_rows: int = 24) -> pd.DataFrame:
    """Rows of a client, the same for the same name; `ill` is an integer."""
    draw = np.random.default_rng(list(name.encode()))
    x = draw.normal(size=(num_rows, 2))
    return pd.DataFrame({"b": x[:, 1], "note": ["x"] * num_rows, "a": x[:, 0], "ill": (x.sum(axis=1) > 0).astype(int)})


ROWS = {name: frame(name) for name in ("north", "south")}


def blocks(page: Path) -> list[str]:
    """The code of a page, block by block."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_of_docs_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its blocks, one after the other, but those of a federation over the network, which another test runs."""
    monkeypatch.chdir(ROOT)
    known: dict[str, Any] = {}
    for block in blocks(PAGE):
        if "kernfed.connect" not in block:
            exec(block, known)  # the page is ours
    told = capsys.readouterr()
    assert "kernfed.Newton: method.rigde: unknown key; did you mean 'ridge'?" in told.out
    assert "own model kept" not in told.out
    assert {"global", "local", "central", "training"} == set(known["table"]["model"])
    assert known["model"].classes_.tolist() == [0, 1]


def test_rows_of_any_form_are_the_same_rows() -> None:
    """A frame, a dict of columns, X beside y, and an array in the job's order give the same bits."""
    frames = python.simulate(JOB, ROWS)
    others: list[dict[str, Any]] = [
        {name: {key: f[key].to_numpy() for key in f} for name, f in ROWS.items()},
        {name: (f.drop(columns="ill"), f["ill"]) for name, f in ROWS.items()},
    ]
    for other in others:
        assert np.array_equal(python.simulate(JOB, other).model().weights, frames.model().weights)
    arrays = {name: (f[["a", "b"]].to_numpy(), f["ill"].to_numpy()) for name, f in ROWS.items()}
    plain = {name: f.drop(columns="note") for name, f in ROWS.items()}  # a column that no job uses tells records apart
    assert np.array_equal(python.simulate(JOB, arrays).model().weights, python.simulate(JOB, plain).model().weights)


def test_test_rows_may_be_given_apart() -> None:
    """Then all other rows are trained on, and metrics are of those."""
    halves = {name: {"train": f[:16], "test": f[16:]} for name, f in ROWS.items()}
    found = python.simulate(JOB, halves)
    clients = {name: metrics["global"] for name, metrics in list(found.rounds())[-1].clients.items()}
    model = found.model()
    for name, f in ROWS.items():
        assert clients[name]["accuracy"] == pytest.approx(model.score(f[16:], f["ill"][16:]))


def test_it_works_beside_a_loop_that_runs_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook, async code and a script get the same bits; no file stays behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = python.simulate(JOB, ROWS).model().weights

    async def notebook() -> list[Any]:
        return [python.simulate(JOB, ROWS).model().weights, (await python.simulate_async(JOB, ROWS)).model().weights]

    assert all(np.array_equal(weights, script) for weights in asyncio.run(notebook()))
    assert list(tmp_path.iterdir()) == []


def test_one_that_nobody_waits_for_ends() -> None:
    """It looks at each event whether it is wanted."""
    stop = threading.Event()
    stop.set()
    with pytest.raises(asyncio.CancelledError):
        python._simulate(JOB, ROWS, True, None, stop)


def test_results_are_at_hand(tmp_path: Path) -> None:
    """Metrics, rounds, record, notes, findings and files are those that a coordinator leaves."""
    found = python.simulate(JOB, ROWS)
    assert found.clients == ("north", "south")
    assert [r.number for r in found.rounds()] == list(range(1, len(list(found.rounds())) + 1))
    metrics = found.metrics()
    assert isinstance(metrics, pd.DataFrame)
    assert list(metrics.columns) == ["round", "client", "model", "metric", "value"]
    assert found.record["settings"]["method"]["rounds"] == 3
    assert found.notes[-1].startswith("end: ")
    assert "end" in found.findings
    assert "<html" in found.report().html
    assert "<iframe" in found.report()._repr_html_()
    assert repr(found).startswith("<kernfed.Simulation small: succeeded after ")
    kept = found.save(tmp_path / "new")
    assert np.array_equal(kernfed.load_model(kept).weights, found.model().weights)
    with pytest.raises(ConfigError, match="give a new folder"):
        found.save(tmp_path / "new")
    with pytest.raises(UnknownArtifactError, match=r"no artifact 'x'; the job's artifacts: .*job\.json"):
        found.artifact("x")


def test_a_client_has_its_own_model_where_it_keeps_one() -> None:
    """By name; of a method that leaves no global one the sentence says so."""
    found = python.simulate(JOB.replace(method={"name": "local"}), ROWS)
    assert found.model("north").classes_.tolist() == [0, 1]
    assert found.model("north").classes_.dtype.kind == "i"
    with pytest.raises(UnknownClientError, match="no model of client 'west'; models are kept by: north, south"):
        found.model("west")
    with pytest.raises(DataError, match="left no global model"):
        found.model()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({}, "clients is no table of rows by client"),
        ({"north": 3}, "client north: rows of type int are no table"),
        ({"north": frame("n").drop(columns="a")}, "client north: .*'a'"),
        ({"north": frame("n").assign(a="x")}, "client north: column 'a', row 1 .*text where a number is needed"),
        ({"north": frame("n").assign(a=np.nan)}, "client north: column 'a', row 1 .*no value"),
        ({"north": (np.zeros((3, 3)), [0, 1, 0])}, r"client north: X has shape \(3, 3\), want \(rows, 2\): .*a, b"),
        ({"north": (np.zeros((3, 2)), [0, 1])}, "client north: X has 3 rows and y 2"),
        ({"north": (frame("n"), frame("n")["ill"])}, "client north: X has the target 'ill' too"),
        ({"north": {"train": frame("n"), "test": 3}}, "client north, test: rows of type int"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_a_sentence(rows: Any, says: str) -> None:
    """Client, column and row are named."""
    with pytest.raises((ConfigError, DataError), match=says):
        python.simulate(JOB, rows)


def test_a_job_that_fails_raises_its_own_error() -> None:
    """Or gives it with the result where it is not to be raised."""
    one_class = {name: f.assign(ill=1) for name, f in ROWS.items()}
    with pytest.raises(KernfedError) as caught:
        python.simulate(JOB, one_class)
    found = python.simulate(JOB, one_class, check=False)
    assert type(found.error) is type(caught.value)
    assert str(found.error) == str(caught.value)
    with pytest.raises(ConfigError, match=r"cohort\.clients names west"):
        python.simulate(JOB.replace(cohort={"clients": ["west"]}), ROWS)
