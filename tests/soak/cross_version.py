"""Two releases in one federation: a coordinator of one with clients of the other, over mutual TLS on loopback.

The other release is any revision of the repository. Small jobs of every method run four times: with this tree alone,
with the coordinator of the other, with the clients of the other, and with one client of it among two of this one. The
SHA-256 of every model that a job leaves, at the coordinator and at clients, must be the same each time, or the job says
that a client's release does not know what it asks for. Where the coordinator is of this tree, the other's `kernfed`
looks at the jobs and fetches their artifacts. Takes a few minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernfed.errors import VersionMismatchError
from kernfed.federation.events import JobState
from kernfed_client.models.kept_models import kept_models
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_testing import nodes
from kernfed_testing.crashes.soak import CLIENTS, is_model, job_text
from kernfed_testing.federation import Ended, Federation
from kernfed_testing.nodes import Node, Process

TREE = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "server", "client", "simulation")
POLICY = """[policy]
min_rows = 1
max_sample_points = 10
allow = ["summary", "mean_embedding", "sufficient_statistic", "gradient", "newton_step", "prediction", "model_update",
  "collaboration_weights", "metric", "unlabelled_sample"]
"""
BINARY = {"data_task": "binary", "data_target": "ill", "data_classes": ["0", "1"]}
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "newton-head": ("newton", {"rounds": 4, "loss": "cross-entropy", **BINARY}),
    "newton-head-paper": ("newton", {"rounds": 4, "loss": "cross-entropy", "step": "paper", "solver": "cg", **BINARY}),
    "fedavg-head": ("fedavg", {"rounds": 4, "loss": "cross-entropy", **BINARY}),
    "personalise-newton": ("personalise", {"trainer": "newton"}),
    "personalise-network": ("personalise", {"trainer": "fedavg", "rounds": 4}),
    "reweight-pooled": ("reweight", {"rounds": 4}),
    "reweight-adam": ("reweight", {"rounds": 4, "trainer": "adam", "features": False}),
    "reweight-fedavg": ("reweight", {"rounds": 4, "trainer": "fedavg", "features": False}),
}
MORE = {name: told for name, told in _VARIANTS.items() if told[0] in WORKFLOWS}
"""Jobs beside one of each method, for the variants that have messages of their own: name to method and settings."""

JOBS = (*WORKFLOWS, *MORE)


def source_path(tree: Path) -> str:
    """PYTHONPATH of a tree's packages."""
    return os.pathsep.join(str(tree / package) for package in PACKAGES)


def unpack(revision: str, folder: Path) -> None:
    """Write the files of a revision into a folder."""
    made = subprocess.run(["git", "archive", revision], cwd=TREE, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")


class Crossed(Federation):
    """A federation of processes, each with the code of its own tree."""

    def __init__(self, root: Path, coordinator: Path, clients: dict[str, Path]) -> None:
        super().__init__(root, CLIENTS, processes=True, settings=dict.fromkeys(CLIENTS, POLICY))
        self._trees = {"": coordinator, **clients}

    def _make_coordinator(self) -> Node:
        return Process("kernfed_server", "run", cwd=self.root, env=self._env(""))

    def _make_client(self, name: str) -> Node:
        return Process("kernfed_client", "run", cwd=self.client_folder(name), env=self._env(name))

    def _env(self, name: str) -> dict[str, str]:
        return {"PYTHONPATH": source_path(self._trees[name])}


@dataclass
class Ran:
    """What the jobs of one federation left."""

    models: dict[str, dict[str, str]] = field(default_factory=dict)
    """Job to model to SHA-256; `NAME/...` are those that client NAME keeps."""
    failed: dict[str, str] = field(default_factory=dict)


async def run_jobs(fed: Federation, names: tuple[str, ...], look: Path | None) -> Ran:
    """Run jobs one after the other.

    Args:
        fed: A federation that is up.
        names: Of `JOBS`.
        look: Tree whose `kernfed` looks at the jobs too; None: none does.
    """
    ran = Ran()
    for name in names:
        method, settings = MORE.get(name, (name, None))
        text = await job_text(fed, method) if settings is None else fed.job(method, cohort_min_clients=3, **settings)
        ended = await fed.run(f"report = false\n{text}")
        if ended.info.state is not JobState.SUCCEEDED:
            ran.failed[name] = ended.info.error_message
            continue
        ran.models[name] = await _models(fed, ended.info.job_id)
        if look is not None:
            problem = await asyncio.to_thread(_looked_at, fed, ended, look, ran.models[name])
            if problem:
                ran.failed[name] = problem
    return ran


async def _models(fed: Federation, job_id: str) -> dict[str, str]:
    left = {a.name: a.sha256 for a in await fed.operator.artifacts(job_id) if is_model(a.name)}
    for client in CLIENTS:
        folder = kept_models(fed.client_folder(client) / "state").get(job_id)
        for path in sorted(folder.glob("*.safetensors")) if folder else ():
            left[f"{client}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return left


def _looked_at(fed: Federation, ended: Ended, tree: Path, models: dict[str, str]) -> str:
    """What the `kernfed` of a tree gets wrong about a job; empty where it is right."""
    job_id = ended.info.job_id
    shown = json.loads(_kernfed(fed, tree, "job", "show", job_id, "--json"))
    if (shown["job_id"], shown["state"]) != (job_id, ended.info.state.value):
        return f"kernfed job show says {shown}"
    out = fed.root / "fetched" / job_id
    _kernfed(fed, tree, "job", "fetch", job_id, "--out", str(out))
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.glob("*.safetensors")
        if is_model(path.name)
    }
    want = {name: digest for name, digest in models.items() if "/" not in name}
    return "" if found == want else f"kernfed job fetch brings {found}, not {want}"


def _kernfed(fed: Federation, tree: Path, *arguments: str) -> str:
    module, function = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["kernfed"].split(":")
    where = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
    return subprocess.run(
        [sys.executable, "-c", f"from {module} import {function}; {function}()", *arguments, *where],
        env={**os.environ, "PYTHONPATH": source_path(tree)},
        cwd=fed.root,
        capture_output=True,
        text=True,
        check=True,
        timeout=nodes.LIMIT_S,
    ).stdout


async def run(revision: str, names: tuple[str, ...], say: Callable[[str], None]) -> int:
    """Run it; the exit status."""
    with tempfile.TemporaryDirectory(prefix="kernfed-cross-") as folder:
        other, now = Path(folder) / "other", dict.fromkeys(CLIENTS, TREE)
        unpack(revision, other)
        crossings = {
            "coordinator and clients of this tree": (TREE, now, None),
            f"coordinator of {revision}, clients of this tree": (other, now, None),
            f"coordinator of this tree, clients of {revision}": (TREE, dict.fromkeys(CLIENTS, other), other),
            f"coordinator and two clients of this tree, one client of {revision}": (TREE, {**now, "a": other}, None),
        }
        running = [_federation(Path(folder) / str(i), *trees, names) for i, trees in enumerate(crossings.values())]
        ran = dict(zip(crossings, await asyncio.gather(*running), strict=True))
    alone = next(iter(ran.values()))
    wrong = 0
    for what, found in ran.items():
        bad = dict(found.failed)
        for name in alone.models.keys() & found.models.keys() - bad.keys():
            if found.models[name] != alone.models[name]:
                bad[name] = f"{found.models[name]} differ from {alone.models[name]}"
        models = sum(len(left) for name, left in found.models.items() if name not in bad)
        say(f"{what}: {len(names) - len(bad)} of {len(names)} jobs the same, {models} models with equal SHA-256")
        for name, problem in bad.items():
            say(f"  {name}: {problem}")
        wrong += sum(VersionMismatchError.reason not in problem for problem in bad.values())
    return 1 if wrong else 0


async def _federation(
    root: Path, coordinator: Path, clients: dict[str, Path], look: Path | None, names: tuple[str, ...]
) -> Ran:
    root.mkdir()
    async with Crossed(root, coordinator, clients) as fed:
        return await run_jobs(fed, names, look)


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="the other release, as git names it")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, metavar="NAME", help=", ".join(JOBS))
    args = parser.parse_args()
    nodes.LIMIT_S = 180.0
    return asyncio.run(run(args.revision, tuple(args.jobs), lambda text: print(text, flush=True)))


if __name__ == "__main__":
    sys.exit(main())
