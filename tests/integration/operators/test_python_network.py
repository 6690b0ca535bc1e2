"""`kernfed.connect` over real sockets: what the page of docs shows, and how a job's end is told."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import kernfed
from kernfed.errors import ConfigError, JobCancelledError, KernfedError, UnknownJobError
from kernfed.federation.events import JobState
from kernfed_testing.federation import COLUMNS, Federation
from kernfed_testing.places import ROOT


def small_job(**keys: Any) -> kernfed.Job:
    """A job on the harness's data."""
    data = kernfed.Data(task="regression", target="y", features=COLUMNS)
    whole = {
        "name": "small",
        "method": kernfed.Newton(ridge=0.1, rounds=3),
        "data": data,
        "features": {"kernel": "linear"},
    }
    return kernfed.Job(**{**whole, **keys})


def interrupted(wait_for: Any) -> Any:
    """The same, but that somebody presses Ctrl-C during the second wait."""
    waits = itertools.count(1)

    def wait(work: Any) -> Any:
        found = wait_for(work)
        if next(waits) == 2:
            raise KeyboardInterrupt
        return found

    return wait


async def test_the_page_of_docs_runs_on_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its block of code submits, follows and fetches a job; errors, cancelling and a closed line are told in words."""
    async with Federation(tmp_path / "fed", ["north", "south"]) as federation:
        place = tmp_path / "pki" / "operator-ann"
        shutil.copytree(federation.identities.operator, place)
        about = json.loads((place / "identity.json").read_text())
        about["coordinator"] = f"localhost:{federation.ports.federation}"
        (place / "identity.json").write_text(json.dumps(about))
        monkeypatch.chdir(tmp_path)
        page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        (block,) = (b for b in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if "connect" in b)
        known: dict[str, Any] = {"kernfed": kernfed, "job": small_job()}

        def as_shown() -> None:
            exec(block, known)  # the page is ours
            fed, run = known["fed"], known["run"]
            assert run.info.state is JobState.SUCCEEDED
            assert known["model"].feature_names_in_.tolist() == list(COLUMNS)
            assert {"global", "local", "training"} == set(known["table"]["model"])
            assert "<html" in known["page"].html
            assert run.notes[-1].startswith("end: ")
            assert [job.job_id for job in fed.jobs()] == [run.job_id]
            assert [r.number for r in fed.job("small").rounds()] == [r.number for r in run.rounds()]
            assert "model.json" in {path.name for path in run.save(tmp_path / "out")}

        def otherwise() -> None:
            with kernfed.connect() as fed:  # it looks where the commands look
                with pytest.raises(UnknownJobError):
                    fed.job("nothing")
                probe = kernfed.Job(name="long", method=kernfed.Probe(rounds=100_000))
                run = fed.submit(probe)
                with pytest.raises(TimeoutError) as slow:
                    run.wait(timeout_s=0.2)
                assert f"fed.job({run.job_id!r})" in slow.value.__notes__[0]
                with (
                    mock.patch.object(fed, "wait_for", interrupted(fed.wait_for)),
                    pytest.raises(KeyboardInterrupt) as key,
                ):
                    list(run.rounds())
                assert f"fed.job({run.job_id!r})" in key.value.__notes__[0]
                assert not run.info.state.finished
                assert run.cancel().state is JobState.CANCELLED
                with pytest.raises(JobCancelledError):
                    run.wait()
                with pytest.raises(KernfedError) as failed:
                    list(fed.submit(small_job(data={"task": "regression", "target": "y", "features": ["no"]})).rounds())
                assert "'no'" in str(failed.value)
            with pytest.raises(ConfigError, match="this connection is closed"):
                fed.jobs()

        await asyncio.to_thread(as_shown)
        await asyncio.to_thread(otherwise)
        await asyncio.to_thread(known["fed"].close)
    assert "north True" in capsys.readouterr().out
