"""Online learning: rounds per second over the network beside the session's own limit, and what a client's step costs.

Over the network: a coordinator and client daemons, each a process of its own, over TLS on loopback, with state kept on
disk after each round. The limit is a session of the same number of clients that only echoes as many numbers as a
client sends, and keeps nothing. Step by step: processor time of a client's step on rows of a table, without state: with
gradients and `experts = "kernels"` against N and D, and with statistics against the rows of a round and D.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]

ROW_COLUMNS = 15


def rows_csv(seed: int, num_rows: int) -> str:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, size=(num_rows, ROW_COLUMNS))
    y = np.sin(x[:, 0]) + x[:, 1] ** 2
    head = ",".join([*(f"x{i}" for i in range(ROW_COLUMNS)), "y"])
    return "\n".join([head, *(",".join(f"{v:.6f}" for v in (*row, t)) for row, t in zip(x, y, strict=True))]) + "\n"


def job_text(clients: list[str], rounds: int, kernels: str) -> str:
    return f"""
name = "bench"
seed = 1
[method]
name = "online"
rounds = {rounds}
{kernels}
metrics_every = 1000000
[cohort]
clients = {json.dumps(clients)}
min_fraction = 1.0
[data]
task = "regression"
target = "y"
features = {json.dumps([f"x{i}" for i in range(ROW_COLUMNS)])}
"""


async def network(num_clients: int, rounds: int, kernels: str) -> tuple[float, int]:
    """Rounds per second of a job, and bytes that a client sends per round."""
    from kernfed.federation.events import EventKind, JobState
    from kernfed_testing import nodes
    from kernfed_testing.federation import Federation

    nodes.LIMIT_S = 900.0
    names = [f"c{i:02d}" for i in range(num_clients)]
    data = {name: rows_csv(i, rounds) for i, name in enumerate(names)}
    settings = dict.fromkeys(names, "[policy]\nmin_rows = 1")
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as root:
        made = Federation(Path(root), data, processes=True, settings=settings, heartbeat_s=(5.0, 120.0))
        async with made as fed:
            info = await fed.submit(job_text(names, rounds, kernels))
            while not info.state.finished:  # nobody watches: that costs, and a session has no watchers
                await asyncio.sleep(0.5)
                info = await fed.operator.get(info.job_id)
            if info.state is not JobState.SUCCEEDED:
                raise SystemExit(info.error_message)
            closed: dict[int, float] = {}
            async for update in fed.operator.watch(info.job_id):
                if update.event and update.event.event.kind is EventKind.ROUND_CLOSED:
                    closed[update.event.event.round_num] = update.event.time.timestamp()
            log = (fed.client_folder(names[0]) / "state" / "audit.jsonl").read_text().splitlines()
    sent = [line["bytes"] for line in map(json.loads, log) if line["step"] in ("online.step", "online.pooled_step")]
    return (rounds - 20) / (closed[rounds] - closed[20]), int(np.mean(sent))


def session_limit(num_clients: int, num_bytes: int, rounds: int) -> float:
    """Rounds per second of a session that echoes as much."""
    import session

    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as root:
        session.identities(Path(root), num_clients)
        return session._run("session", num_clients, num_bytes, rounds, Path(root), store=True)["rounds_per_s"]


def opened_job(state: Path, num_rows: int) -> Any:
    """A client of a table whose stream is open."""
    from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
    from kernfed.methods.online.losses import Loss
    from kernfed.methods.online.messages import OpenStreamRequest
    from kernfed_client.steps.registry import STEPS
    from kernfed_simulation.federation import Rows, from_rows

    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, size=(num_rows, ROW_COLUMNS))
    y = random.uniform(size=num_rows)
    job = from_rows({"a": Rows(x, y, x[:1], y[:1])}, (), state)["a"]
    schema = DataSchema(
        task=LearningTask.REGRESSION,
        target="y",
        features=tuple(f"x{i}" for i in range(ROW_COLUMNS)),
        classes=(),
        missing=MissingRule.REFUSE,
        test_fraction=0.0,
        seed=1,
    )
    job.load("default", schema)
    job.standardise((), np.zeros(ROW_COLUMNS), np.ones(ROW_COLUMNS))
    opening = OpenStreamRequest(norm=4.0, target_low=0.0, target_span=1.0, loss=Loss.SQUARED, seed=1)
    STEPS[OpenStreamRequest](job, opening)
    return job


def timed(job: Any, requests: list[Any]) -> float:
    """Processor seconds of a step, on average, without the first quarter of them."""
    from kernfed_client.steps.registry import STEPS

    seconds = 0.0
    for t, request in enumerate(requests):
        start = time.thread_time()
        STEPS[type(request)](job, request)
        if t >= len(requests) // 4:
            seconds += time.thread_time() - start
    return seconds / (len(requests) - len(requests) // 4)


def drawn(job: Any, dictionary: Any, **rules: Any) -> None:
    """Let the client draw the kernels."""
    from kernfed.methods.online.learner import Mixing
    from kernfed.methods.online.messages import DrawDictionaryRequest
    from kernfed_client.steps.registry import STEPS

    draw = DrawDictionaryRequest(
        dictionary=dictionary,
        mixing=Mixing.ADAPTIVE,
        weight_learning_rate=0.0,
        bin_size=(dictionary.num_kernels + 1) // 2,
        exploration=1.0,
        regularisation=0.0,
        **rules,
    )
    STEPS[DrawDictionaryRequest](job, draw)


def step_seconds(num_kernels: int, d: int, num_rows: int = 256) -> float:
    """Processor seconds of a client's step on one row with gradients, on average."""
    from kernfed.methods.online.dictionary import Dictionary, default_lengthscales
    from kernfed.methods.online.messages import OnlineStepRequest

    with tempfile.TemporaryDirectory() as state:
        job = opened_job(Path(state), num_rows)
        drawn(job, Dictionary(default_lengthscales(num_kernels), d, ROW_COLUMNS, 1))
        theta = 0.01 * np.random.default_rng(1).normal(size=(num_kernels, 2 * d))
        every = np.arange(num_kernels, dtype=np.uint8)
        requests: list[Any] = [
            OnlineStepRequest(
                round_num=t, base=-1, num_features=2 * d, kernels=every, theta=theta, batch_rows=1, wait_s=0.0
            )
            for t in range(1, num_rows + 1)
        ]
        return timed(job, requests)


def pooled_row_seconds(rows_per_round: int, d: int, num_rows: int = 320) -> float:
    """Processor seconds of a client for each row with statistics, on average."""
    from kernfed.methods.online.dictionary import Dictionary
    from kernfed.methods.online.own_model import LENGTHSCALES
    from kernfed.methods.online.pooled_messages import PooledStepRequest
    from kernfed.methods.online.pooled_ridge import KEEPS

    with tempfile.TemporaryDirectory() as state:
        job = opened_job(Path(state), num_rows)
        drawn(job, Dictionary(LENGTHSCALES, d, ROW_COLUMNS, 1), own_frequencies=d, pooled=True)
        shape = (len(KEEPS), len(LENGTHSCALES), 2 * d + 1)
        theta = 0.01 * np.random.default_rng(1).normal(size=shape)
        requests: list[Any] = [
            PooledStepRequest(
                round_num=t,
                num_kernels=shape[1],
                num_features=shape[2],
                theta=theta,
                rows=np.full(len(KEEPS), 100.0 * t),
                evidence=0.0,
                num_evident=0,
                batch_rows=rows_per_round,
                wait_s=0.0,
            )
            for t in range(1, num_rows // rows_per_round + 1)
        ]
        return timed(job, requests) / rows_per_round


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=320)
    parser.add_argument("--only", choices=["network", "steps"])
    args = parser.parse_args()
    if args.only != "network":
        print('processor time of a client for a row, ms: gradients, experts = "kernels"')
        sizes = (9, 20, 50, 100)
        print(f"{'N':>6}" + "".join(f"{f'D = {d}':>10}" for d in sizes))
        for n in (11, 51, 101, 201):
            print(f"{n:>6}" + "".join(f"{1e3 * step_seconds(n, d):>10.3f}" for d in sizes), flush=True)
        print("statistics, by rows of a round")
        sizes = (9, 20, 40)
        print(f"{'rows':>6}" + "".join(f"{f'D = {d}':>10}" for d in sizes))
        for rows in (1, 10):
            print(f"{rows:>6}" + "".join(f"{1e3 * pooled_row_seconds(rows, d):>10.3f}" for d in sizes), flush=True)
    if args.only != "steps":
        for what, kernels in (
            ("gradients, M = 25, D = 20", "kernels_per_round = 25\nnum_frequencies = 20"),
            ("statistics, D = 40, a row per round", ""),
        ):
            online, num_bytes = asyncio.run(network(args.clients, args.rounds, kernels))
            limit = session_limit(args.clients, num_bytes, args.rounds)
            print(f"\n{args.clients} clients, {what}, {num_bytes} bytes sent per client and round")
            print(f"online  {online:8.1f} rounds/s\nsession {limit:8.1f} rounds/s, which only echoes")
            print(f"share   {online / limit:8.2f}")


if __name__ == "__main__":
    main()
