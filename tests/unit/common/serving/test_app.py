"""The service of a model: what it answers to rows, to rows that it refuses, and to requests that are odd."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from typer.testing import CliRunner

from kernfed.cli.main import app
from kernfed.columns.plan import ColumnKind, ColumnPlan, MissingRule
from kernfed.errors import ConfigError, UnavailableError
from kernfed.federation.messages.data import LearningTask
from kernfed.models.estimator import Estimator, estimator
from kernfed.serving import app as service
from kernfed.serving.app import make_app
from kernfed.serving.server import serve
from kernfed_testing.models import frame, linear_model, make_model

COLUMNS = (
    ColumnPlan(name="dose", kind=ColumnKind.NUMBER, missing=MissingRule.MEAN, fill=7.5, unit="mg", settled=True),
    ColumnPlan(
        name="sex", kind=ColumnKind.CATEGORY, missing=MissingRule.REFUSE, levels=("female", "male"), settled=True
    ),
)


def client_of(model: Estimator) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(make_app(model, "abc")), base_url="http://here")


def same(values: Any) -> Any:
    """Numbers but for their last digits: a row alone is multiplied otherwise than among many. Text as it is."""
    number = isinstance(values[0] if isinstance(values, list) else values, float)
    return pytest.approx(values, rel=1e-12) if number else values


@pytest.mark.parametrize("task", LearningTask)
async def test_rows_are_predicted_as_the_model_does(task: LearningTask) -> None:
    """Many rows and one, numbers and classes with their probabilities, whatever the order of columns."""
    model, rows = estimator(make_model(task)), frame(5)
    cells = [dict(reversed(row.items())) for row in rows.to_dict("records")]
    async with client_of(model) as client:
        found = (await client.post("/predict", json={"rows": cells})).json()
        assert found["model"] == "abc"
        assert [row["prediction"] for row in found["rows"]] == same(model.predict(rows).tolist())
        alone = (await client.post("/predict", json={"row": cells[2]})).json()
        assert alone["prediction"] == same(found["rows"][2]["prediction"])
        if task is not LearningTask.REGRESSION:
            shares = alone["probabilities"]
            assert list(shares) == list(model.classes)
            assert sum(shares.values()) == pytest.approx(1.0)


async def test_columns_with_types_take_text_and_gaps() -> None:
    """Levels come as text, a gap is null, and the schema says so."""
    model = estimator(linear_model(COLUMNS))
    async with client_of(model) as client:
        told = (await client.get("/schema")).json()
        assert told["columns"] == [
            {"name": "dose", "type": "number", "gaps": "mean", "unit": "mg"},
            {
                "name": "sex",
                "type": "text, one of levels",
                "gaps": "refuse",
                "levels": ["female", "male"],
                "unknown": "refuse",
            },
        ]
        whole = (await client.post("/predict", json={"row": {"dose": 7.5, "sex": "male"}})).json()
        gap = (await client.post("/predict", json={"row": {"dose": None, "sex": "male"}})).json()
        assert whole["prediction"] == gap["prediction"]
        assert (await client.get("/health")).json() == {"status": "ok", "model": "abc"}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ('{"row": {"dose": 1}}', 422, "row 1 lacks the column 'sex'; null says"),
        (
            '{"row": {"dose": 1, "sex": "divers"}}',
            422,
            "column 'sex', row 1 (counted from 1): a level that the job does",
        ),
        ('{"row": {"dose": "much", "sex": "male"}}', 422, "column 'dose', row 1"),
        ('{"row": {"dose": Infinity, "sex": "male"}}', 422, "infinite"),
        ('{"row": {"dose": 1e999, "sex": "male"}}', 422, "infinite"),
        ('{"row": {"dose": [1], "sex": "male"}}', 422, "the cell is no number, text or null"),
        ('{"row": {"dose": 1, "sex": null}}', 422, "missing"),
        ('{"rows": [1]}', 422, "row 1 is no object"),
        ('{"rows": []}', 422, "no list of 1 to 100,000 rows"),
        ('{"rows": {}}', 422, "no list of 1 to 100,000 rows"),
        ('{"other": 1}', 400, '{"row": {...}}'),
        ("[]", 400, '{"row": {...}}'),
        ("{", 400, "not JSON"),
        ("[" * 100_000, 400, "not JSON"),
        ("\udcff", 400, "not JSON"),
        (f'{{"row": {{"dose": {"9" * 5000}, "sex": "male"}}}}', 400, "not JSON"),
    ],
)
async def test_odd_requests_get_a_sentence(body: str, status: int, words: str) -> None:
    """What, where and the remedy, as JSON; never a traceback."""
    async with client_of(estimator(linear_model(COLUMNS))) as client:
        found = await client.post("/predict", content=body.encode("utf-8", "surrogateescape"))
        assert (found.status_code, list(found.json())) == (status, ["error"])
        assert words in found.json()["error"]


async def test_large_requests_and_crowds_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies beyond the limit are not read to their end, and a queue has one too."""
    monkeypatch.setattr(service, "MAX_BODY", 100)
    async with client_of(estimator(linear_model(COLUMNS))) as client:
        assert (await client.post("/predict", content=b"x" * 101)).status_code == 413
        assert (await client.get("/predict")).status_code == 405
        assert (await client.get("/nowhere")).json() == {"error": "Not Found"}
        monkeypatch.setattr(service, "_BUSY", 0)
        found = await client.post("/predict", json={"row": {"dose": 1, "sex": "male"}})
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")


async def test_a_request_that_does_not_come_whole_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without an end is told so; one whose sender has gone leaves no line in the log."""
    monkeypatch.setattr(service, "_BODY_S", 0.05)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    made = make_app(estimator(make_model()), "abc")
    sent: list[Any] = []

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    with structlog.testing.capture_logs() as logs:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url="http://here") as client:
            found = await client.post("/predict", content=endless())
        assert (found.status_code, "did not end within" in found.json()["error"]) == (408, True)
        scope = {"type": "http", "method": "POST", "path": "/predict", "headers": [], "query_string": b""}
        await made(scope, gone, send)
    assert (logs, sent[0]["status"]) == ([], 400)


async def test_rows_without_a_score_are_refused() -> None:
    """A number so large that the score of its row is none, and an integer that no float64 holds."""
    async with client_of(estimator(make_model(LearningTask.REGRESSION))) as client:
        for age, words in (
            (-1e308, "row 1 (counted from 1): its numbers are too far"),
            (10**400, "column 'age', row 1"),
        ):
            found = await client.post("/predict", json={"row": {"age": age, "höhe": 1e308, "chol": -1e308}})
            assert (found.status_code, words in found.json()["error"]) == (422, True), found.text


async def test_a_fault_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw is an answer of JSON too, and a line of the log with its traceback."""
    model = estimator(linear_model(COLUMNS))

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(model), "predict", broken)
    transport = httpx.ASGITransport(make_app(model, "abc"), raise_app_exceptions=False)
    with structlog.testing.capture_logs() as logs:
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            found = await client.post("/predict", json={"row": {"dose": 1, "sex": "male"}})
    assert (found.status_code, "ZeroDivisionError" in found.json()["error"]) == (500, True)
    assert [entry["log_level"] for entry in logs] == ["error"]


def test_what_cannot_be_served_is_named(tmp_path: Path) -> None:
    """A half pair of files for TLS, one that is none, a port that is taken."""
    make_model().save(tmp_path)
    half = CliRunner().invoke(app, ["serve", str(tmp_path), "--certificate", str(tmp_path / "model.json")])
    assert "go together" in str(half.exception)
    given: dict[str, Any] = {"ready": lambda _: None}
    model, bad = estimator(make_model()), tmp_path / "model.json"
    with pytest.raises(ConfigError, match="the certificate cannot be used"):
        serve(model, "abc", "127.0.0.1", 0, certificate=bad, key=bad, **given)
    with pytest.raises(UnavailableError, match=r"cannot listen on 192\.0\.2\.1"):
        serve(model, "abc", "192.0.2.1", 0, **given)


@pytest.mark.slow
def test_the_command_serves_until_a_signal(tmp_path: Path) -> None:
    """It says where it answers, predicts over a socket, and ends on SIGTERM."""
    model = make_model(LearningTask.REGRESSION)
    model.save(tmp_path)
    command = [str(Path(sys.executable).with_name("kernfed")), "serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        try:
            rows = frame(2)
            asked = json.dumps({"rows": rows.to_dict("records")}).encode()
            with urllib.request.urlopen(address, data=asked, timeout=60) as answer:
                found = json.loads(answer.read())
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert [row["prediction"] for row in found["rows"]] == pytest.approx(model.predict(rows).tolist())
