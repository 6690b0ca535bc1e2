"""Online jobs over the network: streams that are fed while the job runs, daemons that are killed, jobs that end."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.federation import COLUMNS, Federation, make_csv
from kernfed_testing.limits import LIMIT_S

ABC = ["a", "b", "c"]
GRADIENTS = "num_kernels = 7\nkernels_per_round = 3\nnum_frequencies = 8"
STATISTICS = "num_frequencies = 8"
STREAM = '[policy]\nmin_rows = 1\n[datasets.default.stream]\nsource = "follow"\npath = "rows"'


def job_text(kernels: str = STATISTICS, **settings: object) -> str:
    lines = "\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items())
    return f"""
name = "live"
seed = 3
[method]
name = "online"
{kernels}
metrics_every = 5
wait_s = 0.05
{lines}
[cohort]
clients = ["a", "b", "c"]
min_fraction = 0.5
deadline_s = 20
[data]
task = "regression"
target = "y"
features = {json.dumps(list(COLUMNS))}
"""


class Sensors:
    """Writes the rows of each client's stream, some at a time."""

    def __init__(self, fed: Federation, num_rows: int) -> None:
        self.lines = {name: make_csv(f"stream-{name}", num_rows).splitlines() for name in fed.data}
        self.paths = {name: fed.client_folder(name) / "rows" / "today.csv" for name in fed.data}
        self.told = dict.fromkeys(fed.data, 0)
        for name, path in self.paths.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.lines[name][0] + "\n")

    def tell(self, num_rows: int, *names: str) -> None:
        for name in names or self.paths:
            start = 1 + self.told[name]
            with self.paths[name].open("a") as file:
                file.write("".join(line + "\n" for line in self.lines[name][start : start + num_rows]))
            self.told[name] += num_rows


async def rows_counted(fed: Federation, job_id: str, wanted: int) -> None:
    """Wait until a round has closed in which all rows are counted."""
    async with asyncio.timeout(LIMIT_S):
        async for update in fed.operator.watch(job_id):
            event = update.event.event if update.event else None
            if event and event.kind is EventKind.ROUND_CLOSED and event.metrics:
                assert event.metrics.training["rows"] <= wanted
                if event.metrics.training["rows"] == wanted:
                    return
    raise AssertionError("the job ended before")


async def artifact(fed: Federation, job_id: str, name: str, folder: Path) -> bytes:
    found = {a.name: a for a in await fed.operator.artifacts(job_id)}
    assert name in found, sorted(found)
    await fed.operator.fetch(job_id, folder)
    return (folder / name).read_bytes()


async def test_live_streams_survive_a_kill(tmp_path: Path) -> None:
    """A client is killed by SIGKILL in mid-stream, and the coordinator too: no row is lost, none is counted twice."""
    async with Federation(tmp_path, ABC, processes=True, settings=dict.fromkeys(ABC, STREAM)) as fed:
        sensors = Sensors(fed, 60)
        sensors.tell(10)
        job = await fed.submit(job_text())
        await rows_counted(fed, job.job_id, 30)
        sensors.tell(10)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=13)
        await fed.clients["b"].kill()
        sensors.tell(10)
        await fed.clients["b"].start()
        await rows_counted(fed, job.job_id, 90)
        sensors.tell(10)
        await fed.coordinator.kill()
        await fed.start_coordinator()
        await fed.wait_connected(*ABC)
        await rows_counted(fed, job.job_id, 120)
        sensors.tell(10, "a")
        await rows_counted(fed, job.job_id, 130)
        await fed.operator.cancel(job.job_id)
        ended = await fed.end(job.job_id)
        findings = json.loads(await artifact(fed, job.job_id, "findings.json", tmp_path / "left"))
        left = {p.name for p in (tmp_path / "left").iterdir()}
    assert ended.info.state is JobState.CANCELLED
    counted = {name: c["rows"] for name, c in findings["online"]["clients"].items()}
    assert set(counted) == set(ABC)
    assert {"online.safetensors", "online.json"} <= left
    for name in ABC:
        state = next((fed.client_folder(name) / "state" / "jobs").glob("*/online"))
        assert (state / "rounds.state").stat().st_size < 17 << 20
        last = (state / "weights.csv").read_text().splitlines()[-1].split(",")
        assert int(last[1]) <= sensors.told[name]


async def test_a_rotated_file_loses_no_row(tmp_path: Path) -> None:
    """Renamed as logrotate does while the client is down, then copied and cut off: all rows count, and it is noted."""
    async with Federation(tmp_path, ABC, processes=True, settings=dict.fromkeys(ABC, STREAM)) as fed:
        sensors = Sensors(fed, 60)
        sensors.tell(10)
        job = await fed.submit(job_text())
        await rows_counted(fed, job.job_id, 30)
        path, header = sensors.paths["a"], sensors.lines["a"][0] + "\n"
        await fed.clients["a"].kill()
        sensors.tell(5, "a")
        path.rename(path.with_name("today.csv.1"))
        path.write_text(header)
        sensors.tell(10, "a")
        await fed.clients["a"].start()
        await fed.wait_connected(*ABC)
        sensors.tell(5, "b", "c")
        await rows_counted(fed, job.job_id, 55)
        shutil.copy2(path, path.with_name("today.csv.2"))
        path.write_text(header)
        sensors.tell(5, "a")
        await rows_counted(fed, job.job_id, 60)
        await fed.operator.cancel(job.job_id)
        ended = await fed.end(job.job_id)
    noted = [e.message for e in ended.of(EventKind.NOTE)]
    assert any(m.startswith("a: a file of its stream was rotated") for m in noted), noted
    assert not any("left out" in m for m in noted), noted


async def test_a_faulty_file_is_waited_for(tmp_path: Path) -> None:
    """Corrected in time, the job goes on; left as it is, the job fails, and leaves what was learned."""
    async with Federation(tmp_path, ABC, settings=dict.fromkeys(ABC, STREAM)) as fed:
        sensors = Sensors(fed, 60)
        sensors.tell(10)
        job = await fed.submit(job_text().replace("min_fraction = 0.5", "min_fraction = 1.0\nwait_s = 6"))
        await rows_counted(fed, job.job_id, 30)
        rows = sensors.paths["a"].parent
        later = rows / "tomorrow.csv"
        later.write_text("q,z\n1,2\n")
        sensors.tell(5, "b", "c")
        await fed.event(job.job_id, EventKind.WAITING)
        later.write_text("\n".join(sensors.lines["a"][:6]) + "\n")
        await rows_counted(fed, job.job_id, 45)
        (rows / "tomorrow2.csv").write_text("q,z\n1,2\n")
        ended = await fed.end(job.job_id)
        await artifact(fed, job.job_id, "online.safetensors", tmp_path / "left")
    assert ended.info.state is JobState.FAILED
    assert ended.info.error_reason == "QUORUM_NOT_MET"
    assert "a: INVALID_DATA" in ended.info.error_message
    assert any("the stream of a cannot be read" in e.message for e in ended.of(EventKind.NOTE))
    assert load_file(tmp_path / "left" / "online.safetensors")


async def test_a_corrected_file_is_read_while_the_others_are_silent(tmp_path: Path) -> None:
    """A client that was left out for a faulty file is asked again by itself: nobody else has to have a row."""
    async with Federation(tmp_path, ABC, settings=dict.fromkeys(ABC, STREAM)) as fed:
        sensors = Sensors(fed, 80)
        sensors.tell(5)
        job = await fed.submit(job_text())
        await rows_counted(fed, job.job_id, 15)
        later = sensors.paths["a"].parent / "tomorrow.csv"
        later.write_text("q,z\n1,2\n")
        sensors.tell(1, "b", "c")
        await fed.event(job.job_id, EventKind.CLIENT_FAILED, client="a")
        later.write_text("\n".join(sensors.lines["a"][:61]) + "\n")
        await rows_counted(fed, job.job_id, 17 + 60)
        assert (await fed.operator.get(job.job_id)).state is JobState.RUNNING
        await fed.operator.cancel(job.job_id)


async def test_a_client_joins_a_running_job(tmp_path: Path) -> None:
    """One that comes in mid-stream learns with the others, also after a restart; one with other columns stays out."""
    settings = {**dict.fromkeys(ABC, STREAM), "misfit": STREAM}
    data = {name: make_csv(name) for name in ABC} | {"misfit": "y,z\n1,2\n3,4\n5,6\n"}
    async with Federation(tmp_path, data, processes=True, settings=settings, idle=["c", "misfit"]) as fed:
        sensors = Sensors(fed, 60)
        sensors.tell(10, "a", "b")
        text = job_text().replace('clients = ["a", "b", "c"]\n', "")
        job = await fed.submit(text)
        await rows_counted(fed, job.job_id, 20)
        assert (await fed.operator.get(job.job_id)).clients == ("a", "b")
        sensors.tell(10, "c")
        await fed.clients["c"].start()
        await fed.clients["misfit"].start()
        await fed.event(job.job_id, EventKind.CLIENT_JOINED, client="c")
        await rows_counted(fed, job.job_id, 30)
        assert (await fed.operator.get(job.job_id)).clients == ("a", "b", "c")
        await fed.coordinator.kill()
        await fed.start_coordinator()
        await fed.wait_connected(*ABC)
        sensors.tell(10, *ABC)
        await rows_counted(fed, job.job_id, 60)
        await fed.operator.cancel(job.job_id)
        ended = await fed.end(job.job_id)
        findings = json.loads(await artifact(fed, job.job_id, "findings.json", tmp_path / "left"))
    assert ended.info.clients == ("a", "b", "c")
    assert set(findings["online"]["clients"]) == set(ABC)
    noted = {e.message for e in ended.of(EventKind.NOTE) if "misfit" in e.message}
    assert all(m.startswith("misfit cannot join: INVALID_DATA") for m in noted)
    assert noted


@pytest.mark.parametrize("kernels", [STATISTICS, GRADIENTS], ids=["statistics", "gradients"])
async def test_network_equals_one_process(tmp_path: Path, kernels: str) -> None:
    """Finite streams give over sockets the parameters that they give in one process, to the last bit."""
    from kernfed.jobs.job_file import parse_job
    from kernfed_simulation.federation import from_client_files
    from kernfed_simulation.run import simulate

    text = job_text(kernels, rounds=20)
    settings = dict.fromkeys(ABC, "[policy]\nmin_rows = 1")
    async with Federation(tmp_path, ABC, settings=settings) as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        left = await artifact(fed, ended.info.job_id, "online.safetensors", tmp_path / "left")
        files = [fed.client_folder(name) / "client.toml" for name in ABC]
    jobs = from_client_files(files, tmp_path / "state")
    await asyncio.to_thread(simulate, parse_job(text), jobs, out=tmp_path / "out")
    assert (tmp_path / "out" / "online.safetensors").read_bytes() == left


async def test_answers_are_of_the_declared_kinds_and_size(tmp_path: Path) -> None:
    """The audit log of a client shows gradients within the budget in bytes, and no weights; or statistics."""
    settings = dict.fromkeys(ABC, "[policy]\nmin_rows = 1")
    small = 'budget = 900\nbudget_unit = "bytes"'
    text = job_text(f"num_kernels = 7\n{small}", rounds=5)
    async with Federation(tmp_path, ABC, settings=settings) as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        ended = await fed.run(job_text(small, rounds=5))
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        log = (fed.client_folder("a") / "state" / "audit.jsonl").read_text().splitlines()
    pooled = [line for line in map(json.loads, log) if line["step"] == "online.pooled_step"]
    assert len(pooled) == 5
    assert all(line["kinds"] == ["sufficient_statistic", "metric"] for line in pooled)
    assert 500 < max(line["bytes"] for line in pooled) <= 900
    sent = [line for line in map(json.loads, log) if line["step"] == "online.step"]
    assert len(sent) == 5
    sizes = [line["bytes"] for line in sent]
    assert np.max(sizes) <= 900
    assert np.max(sizes) > 700
    assert all(line["kinds"] == ["gradient"] for line in sent)
