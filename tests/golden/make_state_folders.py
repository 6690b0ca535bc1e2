"""Writes state-folders.tar.gz and state-folders.json: what a coordinator and its clients of this release have on disk.

The archive holds what an earlier release left, so that later ones can be held against it: write it from a copy of that
release, never to make a test pass::

    PYTHONPATH=COPY/common:COPY/server:COPY/client:COPY/simulation:COPY/tests \
        .venv/bin/python tests/golden/make_state_folders.py SOURCE

In it are a coordinator's data folder and three clients' rows and state folders. Jobs of five methods have ended; one
of fedavg and one online were under way, between two rounds, when everything was killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kernfed
from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed_client.models.kept_models import find_kept_model, load_kept_model
from kernfed_testing.federation import COLUMNS, Federation, make_csv
from kernfed_testing.machine.platform import platform

GOLDEN = Path(__file__).resolve().parent
CLIENTS = ("a", "b", "c")
NUM_ROWS = 40
SETTLED_AFTER_S = 3.0
"""By then the rounds under way wait for the client that is cut off, and all before is on the disk."""
POINTS = np.random.default_rng(5).normal(size=(6, len(COLUMNS))).tolist()
BINARY = {"data_task": "binary", "data_target": "ill", "data_classes": ["0", "1"]}


def _without_features(method: str, *lines: str) -> str:
    """A job of a method that has no section `features`."""
    return "\n".join(
        [
            *(f'name = "{method}"', "seed = 3", "[method]", f'name = "{method}"', *lines),
            *("[cohort]", f"clients = {json.dumps(CLIENTS)}", "min_clients = 3"),
            *("[data]", 'task = "regression"', 'target = "y"', f"features = {json.dumps(COLUMNS)}", ""),
        ]
    )


async def _distill(fed: Federation) -> str:
    text = _without_features("distill", 'public = "public.csv"', "rounds = 3")
    rows = [",".join(map(repr, point)) for point in POINTS]
    (fed.root / "public.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    _, text, files = attach_files(parse_job(text), text, fed.root)
    for content in files.values():
        await fed.operator.upload(content)
    return text


async def _jobs(fed: Federation) -> tuple[dict[str, str], dict[str, str]]:
    """Texts of the jobs that end, and of those that are interrupted."""
    ends = {
        "newton": fed.job("newton", rounds=8),
        "newton-head": fed.job("newton", rounds=4, loss="cross-entropy", **BINARY),
        "local": fed.job("local"),
        "personalise": fed.job("personalise"),
        "distill": await _distill(fed),
    }
    kernels = ("num_kernels = 5", "kernels_per_round = 2", "num_frequencies = 8")
    interrupted = {
        "fedavg": fed.job("fedavg", rounds=30, cohort_min_clients=3),
        "online": _without_features("online", "rounds = 20", *kernels),
    }
    quiet = "report = false\n"
    return {k: quiet + v for k, v in ends.items()}, {k: quiet + v for k, v in interrupted.items()}


def _predictions(model: Any) -> list[Any]:
    scores: list[Any] = model.predict_scores(pd.DataFrame(POINTS, columns=list(COLUMNS))).tolist()
    return scores


async def _record(root: Path) -> dict[str, Any]:
    rows = {name: make_csv(name, NUM_ROWS) for name in CLIENTS}
    settings = dict.fromkeys(CLIENTS, "[policy]\nmin_rows = 1")
    ended: dict[str, Any] = {}
    open_jobs: dict[str, Any] = {}
    async with Federation(
        *(root, rows), processes=True, proxied=["a"], settings=settings, coordinator="jobs_per_client = 2"
    ) as fed:
        ends, interrupted = await _jobs(fed)
        for name, text in ends.items():
            done = await fed.run(text)
            job_id = done.info.job_id
            left = await fed.operator.artifacts(job_id)
            folder = root / "fetched" / name
            await fed.operator.fetch(job_id, folder)
            states = {client: fed.client_folder(client) / "state" for client in CLIENTS}
            kept = name in ("local", "personalise", "distill")
            ended[name] = {
                "job_id": job_id,
                "state": done.info.state.value,
                "rounds": done.info.round_num,
                "num_events": len(await fed.operator.events(job_id)),
                "artifacts": {a.name: a.sha256 for a in left},
                "scores": _predictions(kernfed.load_model(folder))
                if "model.safetensors" in {a.name for a in left}
                else None,
                "own_scores": {
                    client: _predictions(load_kept_model(find_kept_model(state, job_id)))
                    for client, state in states.items()
                }
                if kept
                else {},
            }
        fed.proxies["a"].delay_s = 0.01
        infos = {name: await fed.submit(text) for name, text in interrupted.items()}
        await asyncio.gather(*(fed.event(info.job_id, EventKind.ROUND_CLOSED, round_num=3) for info in infos.values()))
        fed.proxies["a"].stall()
        await asyncio.sleep(SETTLED_AFTER_S)
        for name, info in infos.items():
            now = await fed.operator.get(info.job_id)
            assert not now.state.finished, f"{name} ended before it could be interrupted"
            open_jobs[name] = {"job_id": info.job_id, "text": interrupted[name]}
        await fed.coordinator.kill()
        for client in fed.clients.values():
            await client.kill()
    with tarfile.open(GOLDEN / "state-folders.tar.gz", "w:gz", compresslevel=9) as archive:
        archive.add(root / "data", "data", filter=_plain)
        for name in CLIENTS:
            archive.add(fed.client_folder(name) / "train.csv", f"clients/{name}/train.csv", filter=_plain)
            archive.add(fed.client_folder(name) / "state", f"clients/{name}/state", filter=_plain)
    return {"points": POINTS, "ended": ended, "interrupted": open_jobs}


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without the names of who made it, and without SQLite's shared memory, which a new life makes anew."""
    if member.name.endswith("-shm"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory(prefix="kernfed-state-") as folder:
        found = asyncio.run(_record(Path(folder)))
    recorded = {
        "source": sys.argv[1],
        "made_by": "tests/golden/make_state_folders.py",
        "platform": platform(),
        **found,
    }
    (GOLDEN / "state-folders.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
