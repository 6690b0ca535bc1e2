"""Reweighting over mutual TLS: who refuses to share is named, shares nothing, and takes part all the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed_client.daemon.audit import AUDIT_FILE
from kernfed_client.daemon.audit_chain import verify
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.commands import run_command
from kernfed_testing.federation import Federation

NAMES = ("ant", "bee", "cat", "dog", "eel")
REFUSING = "dog"

JOB = """
name = "shifted"
seed = 3
precision = "float64"
evaluate_every = 100
[method]
name = "reweight"
{method}
[data]
task = "regression"
target = "y"
features = ["x0", "x1"]
test_fraction = 0.25
{features}
"""


def job_text(method: str) -> str:
    """A job that trains on linear features, or a network on the columns; what is shared is 12 points a client."""
    points = "" if 'scope = "own"' in method else "num_points = 12\n"
    if points and "[method.ratios]" not in method:
        method += '\n[method.ratios]\ndenominator = "client"\nnum_frequencies = 60'
    features = '[features]\nkernel = "linear"' if "trainer" not in method or '"newton"' in method else ""
    return JOB.format(method=points + method, features=features)


ALLOW = (
    '[policy]\nallow = ["summary", "mean_embedding", "gradient", "newton_step", "model_update", "metric", '
    '"unlabelled_sample"]\nmax_sample_points = 10\n'
)


def csv_of() -> dict[str, str]:
    random = np.random.default_rng(4)
    texts = {}
    for name in NAMES:
        x = random.normal(size=(60, 2))
        y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * random.normal(size=60)
        texts[name] = "\n".join(
            ["x0,x1,y", *(",".join(map(repr, [*r, t])) for r, t in zip(x.tolist(), y, strict=True))]
        )
    return {name: text.replace("np.float64(", "").replace(")", "") + "\n" for name, text in texts.items()}


def federation(root: Path, **options: Any) -> Federation:
    """Five clients; one shares no sample, and one has points of its own that nobody labelled."""
    lines = {name: ALLOW for name in NAMES if name != REFUSING}
    unlabelled = root.parent / "unlabelled.csv"
    rows = np.random.default_rng(5).normal(0.3, 1.0, size=(30, 2))
    text = "\n".join(["x1,x0", *(f"{b!r},{a!r}" for a, b in rows.tolist())]) + "\n"
    unlabelled.write_text(text)
    lines["bee"] = f'[datasets.default.unlabelled]\npath = "{unlabelled}"\n{ALLOW}'
    return Federation(root, csv_of(), settings=lines, **options)


def audit(fed: Federation, name: str) -> list[dict[str, Any]]:
    path = fed.client_folder(name) / "state" / AUDIT_FILE
    verify(path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def shared(fed: Federation, name: str) -> list[dict[str, Any]]:
    return [line for line in audit(fed, name) if "unlabelled_sample" in line["kinds"]]


def in_one_process(fed: Federation, folder: Path, text: str) -> bytes:
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in NAMES], folder / "state")
    done = simulate(parse_job(text), jobs, text=text, out=folder / "out")
    assert done.error is None, done.error
    return (folder / "out" / "model.safetensors").read_bytes()


async def test_a_job_without_a_way_out_stops_before_anything_is_sent(tmp_path: Path) -> None:
    """The operator reads who refuses and what to do; no audit log has a sample; `own` then runs."""
    async with federation(tmp_path / "fed") as fed:
        ended = await fed.run(job_text('trainer = "newton"'))
        assert ended.info.state is JobState.FAILED
        assert "dog: the policy lets no unlabelled samples leave" in ended.info.error_message
        assert 'method.scope = "own"' in ended.info.error_message
        assert not any(shared(fed, name) for name in NAMES)
        own = await fed.run(job_text('scope = "own"\nrounds = 4'))
        assert own.info.state is JobState.SUCCEEDED, own.info.error_message
        assert not any(shared(fed, name) for name in NAMES)


@pytest.mark.parametrize("method", ["rounds = 6", 'trainer = "adam"\nrounds = 3'], ids=["newton", "adam"])
async def test_a_job_goes_on_without_the_one_that_refuses(tmp_path: Path, method: str) -> None:
    """Its audit log shows that nothing of the kind left; the model has the bits of one process, and predicts."""
    text = job_text(f'on_refusal = "leave-out"\n{method}')
    async with federation(tmp_path / "fed") as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        told = "\n".join(e.message for e in ended.of(EventKind.NOTE))
        assert "dog: the policy lets no unlabelled samples leave" in told
        assert "40 unlabelled points of 4 clients" in told
        assert shared(fed, REFUSING) == []
        assert any(line["step"].startswith("reweight.") for line in audit(fed, REFUSING))
        for name in set(NAMES) - {REFUSING}:
            (line,) = shared(fed, name)
            assert line["shapes"] == {"points": [10, 2]}
        arguments = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
        out = tmp_path / "model"
        done = await run_command("kernfed", "job", "fetch", ended.info.job_id, "--out", str(out), *arguments)
        assert done.returncode == 0, done.stderr
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        assert (out / "model.safetensors").read_bytes() == alone
        (tmp_path / "new.csv").write_text("x1,x0\n0.1,0.2\n")
        rows = ["--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "predicted.csv")]
        predicted = await run_command("kernfed", "predict", "--model", str(out), *rows)
        assert predicted.returncode == 0, predicted.stderr
        assert np.isfinite(float((tmp_path / "predicted.csv").read_text().splitlines()[1].split(",")[-1]))


async def test_what_a_frozen_map_makes_of_rows_is_shared_in_their_place(tmp_path: Path) -> None:
    """Audit logs have one number a point where rows have two; without the backbone in one file nothing leaves."""
    backbone = '[backbones.twice]\nsource = "torch:kernfed_testing.backbones.Doubler"\n'
    lines = dict.fromkeys(NAMES, f"{backbone}{ALLOW}")
    ratios = 'rounds = 4\n[method.ratios]\ndenominator = "client"\n'
    ratios += 'features = "backbone"\nbackbone = "{}"\nnum_features = 1\n'
    async with Federation(tmp_path / "fed", csv_of(), settings={**lines, "eel": ALLOW}) as fed:
        ended = await fed.run(job_text(ratios.format("twice")))
        assert ended.info.state is JobState.FAILED
        assert "eel" in ended.info.error_message
        assert "backbone 'twice' is not allowed here (allowed: none)" in ended.info.error_message
        assert "correct method.ratios.backbone in the job" in ended.info.error_message
        assert not any(shared(fed, name) for name in NAMES)
    text = job_text(ratios.format("twice"))
    async with Federation(tmp_path / "all", csv_of(), settings=lines) as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        for name in NAMES:
            assert [line["shapes"] for line in shared(fed, name)] == [{"points": [10, 1]}]
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        assert await fed.model_sha256(ended) == hashlib.sha256(alone).hexdigest()


async def test_ratios_to_the_mixture_need_sums_alone(tmp_path: Path) -> None:
    """No sample leaves; a client whose policy keeps its sums is named; the model has the bits of one process."""
    sums = '[policy]\nallow = ["summary", "mean_embedding", "gradient", "newton_step", "model_update", "metric"{}]\n'
    lines = {name: sums.format("" if name == REFUSING else ', "sufficient_statistic"') for name in NAMES}
    text = JOB.format(method='rounds = 8\non_refusal = "leave-out"', features="[features]\nnum_frequencies = 30")
    async with Federation(tmp_path / "fed", csv_of(), settings=lines) as fed:
        stopped = await fed.run(text.replace('on_refusal = "leave-out"', ""))
        assert stopped.info.state is JobState.FAILED
        assert "dog: the policy lets no sums over rows leave" in stopped.info.error_message
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        told = "\n".join(e.message for e in ended.of(EventKind.NOTE))
        assert "one ratio for all clients, of test points to the mixture" in told
        for name in NAMES:
            assert shared(fed, name) == []
            steps = {line["step"] for line in audit(fed, name)}
            assert ("reweight.fold_sums" in steps) == (name != REFUSING)
            assert "reweight.mixture_ratios" in steps
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        assert await fed.model_sha256(ended) == hashlib.sha256(alone).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rounds = 8", 'trainer = "adam"\nrounds = 30'], ids=["newton", "adam"])
async def test_processes_are_killed(tmp_path: Path, method: str) -> None:
    """Five processes, one of which refuses; coordinator and a client killed: the model has the bits of one process."""
    text = job_text(f'on_refusal = "leave-out"\n{method}')
    async with federation(tmp_path / "fed", processes=True) as fed:
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=2)
        await fed.coordinator.kill()
        await fed.clients["cat"].kill()
        await fed.start_coordinator()
        await fed.clients["cat"].start()
        ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert shared(fed, REFUSING) == []
        assert await fed.model_sha256(ended) == hashlib.sha256(alone).hexdigest()


async def test_a_client_predicts_with_its_own_batch_norm(tmp_path: Path) -> None:
    """FedBN leaves no model at the coordinator; `kernfed-client predict` uses the one that the client kept."""
    method = 'scope = "own"\ntrainer = "fedavg"\nrounds = 3\n[method.network]\nkind = "mlp"\nwidths = [6]\n'
    async with federation(tmp_path / "fed") as fed:
        ended = await fed.run(job_text(f'{method}batch_norm = "own"'))
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        left = {artifact.name for artifact in await fed.operator.artifacts(ended.info.job_id)}
        folder, out = fed.client_folder("ant"), tmp_path / "predictions.csv"
        files = ["--config", folder / "client.toml", "--data", folder / "train.csv", "--out", out]
        done = await run_command("kernfed-client", "predict", "--job", ended.info.job_id, *map(str, files))
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" not in left
    assert len(out.read_text().splitlines()) == 61


NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, num_columns, num_outputs, width):
        super().__init__()
        self.first, self.norm = nn.Linear(num_columns, width), nn.BatchNorm1d(width)
        self.last, self.drop = nn.Linear(width, num_outputs), nn.Dropout(0.1)

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).relu()))
"""


async def test_a_module_of_the_sites_own_trains_over_the_network(tmp_path: Path) -> None:
    """Each client's file names it; the model has the bits of one process, and predicts with a client file's module."""
    nets = tmp_path / "nets.py"
    nets.write_text(NETS)
    lines = dict.fromkeys(NAMES, f'[networks.net]\nsource = "file:{nets}:Net"\nparameters = {{ width = 4 }}\n{ALLOW}')
    text = job_text(
        'scope = "own"\ntrainer = "fedavg"\nrounds = 2\nlocal_steps = 2\ncompare = false\n'
        '[method.network]\nkind = "own"\nsource = "net"'
    )
    async with Federation(tmp_path / "fed", csv_of(), settings=lines) as fed:
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        out, config = tmp_path / "model", fed.client_folder("ant") / "client.toml"
        arguments = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
        done = await run_command("kernfed", "job", "fetch", ended.info.job_id, "--out", str(out), *arguments)
        assert done.returncode == 0, done.stderr
        alone = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text)
        assert (out / "model.safetensors").read_bytes() == alone
        (tmp_path / "new.csv").write_text("x1,x0\n0.1,0.2\n")
        rows = ["--model", str(out), "--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "predicted.csv")]
        without = await run_command("kernfed", "predict", *rows)
        assert without.returncode == 3
        assert "its module is not here; load it with the module" in without.stderr
        predicted = await run_command("kernfed", "predict", "--networks", str(config), *rows)
        assert predicted.returncode == 0, predicted.stderr
        assert np.isfinite(float((tmp_path / "predicted.csv").read_text().splitlines()[1].split(",")[-1]))
