"""Personalisation over mutual TLS: models that stay are those of one process, and people see who learns from whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed_client.models.kept_models import find_kept_model
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.commands import run_command
from kernfed_testing.federation import Federation
from kernfed_testing.methods.personalise import concept_rows

JOB = """
name = "concepts"
seed = 3
[method]
name = "personalise"
num_frequencies = 50
{method}
[data]
task = "regression"
target = "y"
features = ["x0", "x1", "x2"]
test_fraction = 0.2
[features]
kernel = "linear"
"""


def job_text(method: str = "") -> str:
    """A job on the concepts; one that trains networks evaluates them at its end."""
    return ("evaluate_every = 100\n" if "fedavg" in method else "") + JOB.format(method=method)


def csv_of() -> dict[str, str]:
    texts = {}
    for name, rows in concept_rows((20, 21, 22, 23)).items():
        values = zip(rows.x_train.tolist(), rows.y_train.tolist(), strict=True)
        texts[name] = "\n".join(["x0,x1,x2,y", *(",".join(map(repr, [*x, y])) for x, y in values)]) + "\n"
    return texts


def kept(state: Path, job_id: str) -> bytes:
    return (find_kept_model(state, job_id) / "model.safetensors").read_bytes()


def in_one_process(fed: Federation, folder: Path, text: str) -> dict[str, bytes]:
    """Models of the same job on the same client files, without sockets."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in fed.data], folder)
    done = simulate(parse_job(text), jobs, text=text)
    assert done.error is None, done.error
    return {name: (folder / name / "model" / "model.safetensors").read_bytes() for name in fed.data}


@pytest.mark.parametrize(
    "method",
    ["", 'trainer = "newton"\nrounds = 15', 'trainer = "fedavg"\nrounds = 4\nkept_apart = 2'],
    ids=["exact", "newton", "fedavg"],
)
async def test_the_models_that_stay_are_those_of_one_process(tmp_path: Path, method: str) -> None:
    """Four daemons, each with a model of its own; the coordinator's artifacts hold none of them."""
    text = job_text(method)
    async with Federation(tmp_path / "fed", csv_of()) as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        for name in fed.data:
            assert kept(fed.client_folder(name) / "state", ended.info.job_id) == alone[name]
        names = {a.name for a in await fed.operator.artifacts(ended.info.job_id)}
        assert "findings.json" in names
        assert ("model.safetensors" in names) == ("fedavg" not in method)


async def test_rows_that_leave_embed_as_in_one_process(tmp_path: Path) -> None:
    """Where policies let unlabelled samples out, embeddings are by the kernel itself, and models have the same bits."""
    text = JOB.replace("num_frequencies = 50\n", "").format(method='view = "x"\nembedding_points = 20')
    policy = f"[policy]\nmin_rows = 1\nallow = {json.dumps([kind.value for kind in Kind])}"
    async with Federation(tmp_path / "fed", csv_of(), settings=dict.fromkeys(csv_of(), policy)) as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert any("without targets, are with all clients" in e.message for e in ended.of(EventKind.NOTE))
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        for name in fed.data:
            assert kept(fed.client_folder(name) / "state", ended.info.job_id) == alone[name]


async def test_components_densities_and_centres_that_stay_are_those_of_one_process(tmp_path: Path) -> None:
    """Each client keeps its own, with the bits of one process; the operator sees their errors and scores."""
    jobs = {
        "components.csv": ("personal components, 2 each, leave", 'embedding_kernel = "polynomial2"\ncomponents = 2'),
        "density.csv": ("personal densities are at", 'weights = "paper"\nnum_frequencies = 50\ndensity = true'),
        "centres.csv": ("personal centres, 2 each, leave", 'weights = "paper"\nnum_frequencies = 50\ncentres = 2'),
    }
    policy = dict.fromkeys(csv_of(), "[policy]\nmin_rows = 1")
    async with Federation(tmp_path / "fed", csv_of(), settings=policy) as fed:
        for file, (note, wanted) in jobs.items():
            text = JOB.replace("num_frequencies = 50\n", "").format(method=f'view = "x"\n{wanted}')
            ended = await fed.run(text)
            assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
            assert any(note in e.message for e in ended.of(EventKind.NOTE))
            await asyncio.to_thread(in_one_process, fed, tmp_path / file, text)
            for name in fed.data:
                folder = find_kept_model(fed.client_folder(name) / "state", ended.info.job_id).parent
                assert (folder / file).read_bytes() == (tmp_path / file / name / file).read_bytes()


async def test_commands_show_who_learns_from_whom_and_predict(tmp_path: Path) -> None:
    """`kernfed job show` lists it, `--json` too; `kernfed-client predict` uses the model that stayed; the log tells."""
    async with Federation(
        tmp_path / "fed", csv_of(), settings=dict.fromkeys(csv_of(), "[policy]\nmin_rows = 1")
    ) as fed:
        ended = await fed.run(job_text())
        arguments = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
        shown = await run_command("kernfed", "job", "show", ended.info.job_id, *arguments)
        assert shown.returncode == 0, shown.stderr
        assert "who learns from whom" in shown.stdout
        assert "itself" in shown.stdout
        as_json = await run_command("kernfed", "job", "show", ended.info.job_id, "--json", *arguments)
        assert "how the job ended" in shown.stdout
        assert "end: arrived: " in shown.stdout
        end = json.loads(as_json.stdout)["end"]
        assert end["arrived"] is True
        assert [(c["model"], c["against"]) for c in end["comparisons"]] == [
            ("personal", "local"),
            ("personal", "global"),
        ]
        learning = json.loads(as_json.stdout)["learns_from"]
        assert [c["client"] for c in learning] == sorted(fed.data)
        assert all(sum(t["weight"] for t in c["learns_from"]) == pytest.approx(1, abs=1e-3) for c in learning)
        (tmp_path / "new.csv").write_text("x2,x0,x1\n0.1,0.2,0.3\n")
        config = fed.client_folder("ant") / "client.toml"
        rows = ["--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv"), "--config", str(config)]
        done = await run_command("kernfed-client", "predict", "--job", ended.info.job_id[:12], *rows)
        assert done.returncode == 0, done.stderr
        assert np.isfinite(float((tmp_path / "out.csv").read_text().splitlines()[1].split(",")[-1]))


async def test_a_client_joins_an_earlier_job(tmp_path: Path) -> None:
    """Three clients let a job keep what they share; from the folder that was fetched a fourth has its model in a round.

    Nobody else is asked, and the model has the bits of one process.
    """
    allowed = "[policy]\nallow = " + json.dumps([kind.value for kind in Kind])
    data = csv_of()
    async with Federation(tmp_path / "fed", data, settings=dict.fromkeys(data, allowed)) as fed:
        first = await fed.run(job_text("keep_shared = true") + '[cohort]\nclients = ["ant", "bee", "cat"]\n')
        assert first.info.state is JobState.SUCCEEDED, first.info.error_message
        arguments = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
        folder = tmp_path / "first"
        fetched = await run_command("kernfed", "job", "fetch", first.info.job_id, "--out", str(folder), *arguments)
        assert fetched.returncode == 0, fetched.stderr
        text = job_text('from_job = "first"') + '[cohort]\nclients = ["dog"]\n'
        (tmp_path / "late.toml").write_text(text)
        sent = await run_command("kernfed", "job", "submit", str(tmp_path / "late.toml"), "--json", *arguments)
        assert sent.returncode == 0, sent.stderr
        ended = await fed.end(json.loads(sent.stdout)["job_id"])
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert ended.info.clients == ("dog",)
        assert any("dog joined 3 clients of the earlier job concepts" in e.message for e in ended.events)
        job, _, files = attach_files(parse_job(text), text, tmp_path)
        jobs = from_client_files([fed.client_folder("dog") / "client.toml"], tmp_path / "sim")
        done = await asyncio.to_thread(simulate, job, jobs, files=files)
        assert done.error is None, done.error
        alone = (tmp_path / "sim" / "dog" / "model" / "model.safetensors").read_bytes()
        assert kept(fed.client_folder("dog") / "state", ended.info.job_id) == alone


@pytest.mark.slow
@pytest.mark.parametrize("method", ['trainer = "newton"\nrounds = 20', 'trainer = "fedavg"\nrounds = 30'])
async def test_processes_are_killed(tmp_path: Path, method: str) -> None:
    """Coordinator and a client killed in the middle of training: the models have the bits of one process."""
    text = job_text(method)
    async with Federation(tmp_path / "fed", csv_of(), processes=True, proxied=["ant"]) as fed:
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=2)
        line = fed.proxies["ant"]
        line.stall()
        await fed.coordinator.kill()
        await fed.clients["dog"].kill()
        await fed.start_coordinator()
        await fed.clients["dog"].start()
        line.cut()
        line.resume()
        ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        for name in fed.data:
            assert kept(fed.client_folder(name) / "state", ended.info.job_id) == alone[name]
