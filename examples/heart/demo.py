"""Four hospitals train together: `make demo`.

Starts a real federation on this machine: a certificate authority, one coordinator and four client daemons, each its
own process with its own folder, key and certificate, talking mutual TLS over real sockets. Trains on the UCI heart
disease data of four hospitals with every method and several seeds, says which method serves which hospital best, and
leaves the models and reports. Everything it makes is under one folder, by default `.demo/`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobState, RoundMetrics
from kernfed.pki.identity import Identity
from kernfed.wire.operator_client import OperatorClient

HERE = Path(__file__).resolve().parent
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
METHODS = ("local", "dkrr", "fedavg", "newton", "personalise")
MODELS = {"local": "local", "personalise": "personal"}
"""Which model of a method is compared; of the others the global one."""
BIN = Path(sys.executable).parent
COLOURS = {"local": "#999999", "dkrr": "#E69F00", "fedavg": "#56B4E9", "newton": "#009E73", "personalise": "#CC79A7"}
START_TIMEOUT_S = 300.0
JOB_TIMEOUT_S = 300.0

console = Console(highlight=False, soft_wrap=True)


@dataclass
class Outcome:
    """What one job measured: metric by hospital, on the hospital's own held-out rows."""

    method: str
    seed: int
    job_id: str
    scores: dict[str, dict[str, float]] = field(default_factory=dict)


def command(name: str, *args: str | Path) -> list[str]:
    """A console script of this environment with its arguments."""
    return [str(BIN / name), *map(str, args)]


def run(name: str, *args: str | Path) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(command(name, *args), capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} {args[0]} failed:\n{done.stderr}")
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


@contextlib.contextmanager
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A list of daemons; all of them are stopped at the end, and waited for."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in reversed(started):
            process.terminate()
        deadline = time.monotonic() + 20
        for process in started:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start(started: list[subprocess.Popen[bytes]], log: Path, name: str, *args: str | Path, cwd: Path) -> None:
    """Start a daemon in its own folder; it logs into a file there."""
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # five processes share this machine
    with log.open("wb") as out:
        started.append(subprocess.Popen(command(name, *args), stdout=out, stderr=out, cwd=cwd, env=one_thread))


def write_coordinator(root: Path, port: int, enrolment_port: int) -> None:
    """The coordinator's file."""
    (root / "coordinator.toml").write_text(
        f'listen = "127.0.0.1:{port}"\nenrolment_listen = "127.0.0.1:{enrolment_port}"\njobs_per_client = 2\n'
    )


def enrol(root: Path, hospital: str) -> None:
    """At the operator: a token. At the hospital: key, certificate and client file."""
    token = json.loads(run("kernfed", "pki", "token", hospital, "--dir", root / "pki", "--json"))["token"]
    site = root / hospital
    site.mkdir()
    run("kernfed-client", "enrol", token, "--identity", site / "identity")
    shutil.copy(HERE / "data" / f"{hospital}.csv", site / "patients.csv")
    (site / "client.toml").write_text(
        f"# {hospital}: what this hospital offers. The rows stay in this folder.\nthreads = 1\n\n"
        '[datasets.heart.train]\npath = "patients.csv"\n\n'
        "[policy]\ndrawn_splits = true  # these data are public, and the demo shows several draws of test rows\n"
    )


async def wait_for_clients(client: OperatorClient, root: Path) -> None:
    """Wait until all four daemons are connected."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(KernfedError):
            if {c.name for c in await client.clients() if c.connected} >= set(HOSPITALS):
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"the clients did not connect within {START_TIMEOUT_S:g} s; read {root}/*/client.log")
        await asyncio.sleep(0.2)


async def run_job(client: OperatorClient, method: str, seed: int, progress: Progress, bar: int) -> Outcome:
    """Submit a job and follow it to its end."""
    text = (HERE / f"{method}.toml").read_text()
    text = text.replace("\ntest_fraction", '\nsplit = "copies-together"\ntest_fraction')  # drawn by the seed
    if seed != 1:  # only what the first seed leaves is fetched
        text = text.replace("\nseed = 1\n", f"\nseed = {seed}\nreport = false\n")
    job = await client.submit(text)
    last = RoundMetrics()
    async with asyncio.timeout(JOB_TIMEOUT_S):
        async for update in client.watch(job.job_id):
            if update.event and update.event.event.kind is EventKind.ROUND_CLOSED and update.event.event.metrics:
                last = update.event.event.metrics
                progress.update(bar, description=f"{method}, seed {seed}, round {update.event.event.round_num}")
            job = update.job or job
    if job.state is not JobState.SUCCEEDED:
        raise SystemExit(f"{method}: {job.error_reason}: {job.error_message}")
    progress.advance(bar)
    model = MODELS.get(method, "global")
    return Outcome(method, seed, job.job_id, {h: dict(last.clients[h][model]) for h in HOSPITALS})


async def watch_processes(daemons: Mapping[Path, subprocess.Popen[bytes]]) -> NoReturn:
    """End the demo once a daemon has died, with its log's place; `daemons` are by their logs."""
    while True:
        for log, process in daemons.items():
            if (status := process.poll()) is not None:
                who = "the coordinator" if log.parent.name not in HOSPITALS else f"the client of {log.parent.name}"
                raise SystemExit(f"{who} died (exit status {status}); its log is {log}")
        await asyncio.sleep(0.5)


async def train_watched(root: Path, seeds: range, daemons: Mapping[Path, subprocess.Popen[bytes]]) -> list[Outcome]:
    """Train as `train` does, for as long as all daemons live."""
    watching = asyncio.create_task(watch_processes(daemons))
    try:
        return await train(root, seeds)
    finally:
        watching.cancel()


async def train(root: Path, seeds: range) -> list[Outcome]:
    """Run every method with every seed; fetch what the first seed's jobs left."""
    operator = next((root / "pki").glob("operator-*"))
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with OperatorClient(Identity.load(operator)) as client:
        await wait_for_clients(client, root)
        console.print("Four hospitals are connected:", ", ".join(HOSPITALS))
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("training", total=len(METHODS) * len(seeds))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run_job(client, m, s, progress, bar)) for s in seeds for m in METHODS]
        outcomes = [t.result() for t in tasks]
        for outcome in outcomes:
            if outcome.seed == seeds[0]:
                await client.fetch(outcome.job_id, root / "artifacts" / outcome.method)
    return outcomes


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean and standard error of the mean."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values), error


def summarise(outcomes: list[Outcome], metric: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Hospital to method to (mean, standard error) over seeds, where the metric is defined."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for hospital in HOSPITALS:
        for method in METHODS:
            values = [
                o.scores[hospital][metric] for o in outcomes if o.method == method and metric in o.scores[hospital]
            ]
            if values:
                found.setdefault(hospital, {})[method] = mean_and_error(values)
    return found


def leads(outcomes: list[Outcome], metric: str, hospital: str, best: str) -> bool:
    """Whether `best` leads every other method by more than a standard error of the difference on the same seeds."""
    scores = {(o.method, o.seed): o.scores[hospital] for o in outcomes}
    seeds = sorted({o.seed for o in outcomes})
    for other in set(METHODS) - {best}:
        pairs = [(scores[best, s], scores[other, s]) for s in seeds]
        mean, error = mean_and_error([a[metric] - b[metric] for a, b in pairs if metric in a and metric in b])
        if abs(mean) <= error:
            return False
    return True


def print_table(outcomes: list[Outcome], metric: str, title: str, *, highest: bool) -> None:
    """One row per hospital; a star marks the best method, two one that is clearly ahead."""
    table = Table("hospital", title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for method in METHODS:
        table.add_column(method, no_wrap=True)
    for hospital, by_method in summarise(outcomes, metric).items():
        pick = max if highest else min
        best = pick(by_method, key=lambda m: by_method[m][0])
        cells = []
        for method in METHODS:
            mean, error = by_method[method]
            text = "±".join(f"{value:.3f}".lstrip("0") for value in (mean, error))
            if method == best:
                text = f"[bold]{text}{'**' if leads(outcomes, metric, hospital, best) else '*'}[/bold]"
            cells.append(text)
        table.add_row(hospital, *cells)
    console.print(table)


def plot(outcomes: list[Outcome], path: Path) -> None:
    """Bars of the AUC per hospital and method, with standard errors."""
    auc = summarise(outcomes, "auc")
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(METHODS)
    for i, method in enumerate(METHODS):
        xs = [x + (i - (len(METHODS) - 1) / 2) * width for x in range(len(auc))]
        means = [by_method[method][0] for by_method in auc.values()]
        errors = [by_method[method][1] for by_method in auc.values()]
        axes.bar(xs, means, width, yerr=errors, capsize=3, label=method, color=COLOURS[method])
    axes.set_xticks(range(len(auc)), list(auc))
    axes.set_ylim(0.5, 1.0)
    axes.set_ylabel("AUC on the hospital's held-out patients")
    axes.legend(ncols=len(METHODS), loc="upper right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def show(root: Path, outcomes: list[Outcome], seeds: range) -> None:
    """The tables, the plot, and where everything is."""
    console.print()
    print_table(
        outcomes,
        "auc",
        f"AUC on each hospital's held-out patients, mean ± standard error over {len(seeds)} seeds",
        highest=True,
    )
    undefined = sorted(set(HOSPITALS) - set(summarise(outcomes, "auc")))
    if undefined:
        console.print(
            f"No AUC for {', '.join(undefined)}: its held-out patients are all of one class "
            "(of its 46 complete records one is without disease). Its log-loss is below.\n"
        )
    print_table(outcomes, "log_loss", "Log-loss per patient (lower is better)", highest=False)
    console.print(
        "* best   ** ahead of every other by more than a standard error of the difference on the same seeds\n"
    )
    plot(outcomes, root / "auc.png")
    local = os.path.relpath(root)
    console.print(f"Plot                {local}/auc.png")
    console.print(
        f"Models and reports  {local}/artifacts/METHOD/{{model.safetensors,model.json,metrics.csv,report.html}}"
    )
    console.print(f"Logs                {local}/coordinator.log, {local}/HOSPITAL/client.log")
    console.print(f"What left each site {local}/HOSPITAL/state/audit.jsonl")
    console.print("Predict with a model:")
    console.print(
        f"  kernfed predict --model {local}/artifacts/newton --data examples/heart/data/va.csv --out predictions.csv"
    )


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path(".demo"), help="Folder to make; replaced if it is a demo's.")
    parser.add_argument("--seeds", type=int, default=5, help="Number of seeds, i.e. of splits and feature draws.")
    args = parser.parse_args()
    root: Path = args.dir.resolve()
    if root.exists():
        if any(root.iterdir()) and not (root / "pki").is_dir():
            raise SystemExit(f"{root} holds something else than a demo; give another --dir")
        shutil.rmtree(root)
    root.mkdir(parents=True)
    began = time.monotonic()
    seeds = range(1, args.seeds + 1)
    port, enrolment_port = free_ports(2)
    console.print("Making a certificate authority and enrolling four hospitals ...")
    ports = ("--port", str(port), "--enrol-port", str(enrolment_port))
    run("kernfed", "pki", "init", "--federation", "hearts", "--dir", root / "pki", "--host", "localhost", *ports)
    write_coordinator(root, port, enrolment_port)
    with processes() as started:
        ready = root / "ports"
        start(started, root / "coordinator.log", "kernfed-coordinator", "run", "--port-file", ready, cwd=root)
        wait_for_file(ready, started[0], root / "coordinator.log")
        for hospital in HOSPITALS:
            enrol(root, hospital)
            start(started, root / hospital / "client.log", "kernfed-client", "run", cwd=root / hospital)
        logs = [root / "coordinator.log", *(root / hospital / "client.log" for hospital in HOSPITALS)]
        outcomes = asyncio.run(train_watched(root, seeds, dict(zip(logs, started, strict=True))))
        show(root, outcomes, seeds)
    console.print(f"All five processes have stopped. {time.monotonic() - began:.0f} s in all.")


def wait_for_file(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the coordinator has written its ports."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the coordinator did not start:\n{log.read_text()}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
