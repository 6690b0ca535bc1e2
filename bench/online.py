"""Online learning: rounds per second over the network beside the session's own limit, and what a client's step costs.

Over the network: a coordinator and client daemons, each a process of its own, over TLS on loopback, with state kept on
disk after each round. The limit is a session of the same number of clients that only echoes as many numbers as a client
sends, and keeps nothing. Step by step: processor time of a client's step on rows of a table, against N and D.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

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


def job_text(clients: list[str], rounds: int, m: int, d: int) -> str:
    return f"""
name = "bench"
seed = 1
[method]
name = "online"
rounds = {rounds}
kernels_per_round = {m}
num_frequencies = {d}
metrics_every = 1000000
[cohort]
clients = {json.dumps(clients)}
min_fraction = 1.0
[data]
task = "regression"
target = "y"
features = {json.dumps([f"x{i}" for i in range(ROW_COLUMNS)])}
"""


async def network(num_clients: int, rounds: int, m: int, d: int) -> tuple[float, int]:
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
            info = await fed.submit(job_text(names, rounds, m, d))
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
    sent = [line["bytes"] for line in map(json.loads, log) if line["step"] == "online.step"]
    return (rounds - 20) / (closed[rounds] - closed[20]), int(np.mean(sent))


def session_limit(num_clients: int, num_bytes: int, rounds: int) -> float:
    """Rounds per second of a session that echoes as much."""
    import session

    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as root:
        session.identities(Path(root), num_clients)
        return session._run("session", num_clients, num_bytes, rounds, Path(root), store=True)["rounds_per_s"]


def step_seconds(num_kernels: int, d: int, num_rows: int = 256) -> float:
    """Processor seconds of a client's step, on average."""
    from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
    from kernfed.methods.online.dictionary import Dictionary, default_lengthscales
    from kernfed.methods.online.learner import Mixing
    from kernfed.methods.online.losses import Loss
    from kernfed.methods.online.messages import DrawDictionaryRequest, OnlineStepRequest, OpenStreamRequest
    from kernfed_client.steps.registry import STEPS
    from kernfed_simulation.federation import Rows, from_rows

    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, size=(num_rows, ROW_COLUMNS))
    y = random.uniform(size=num_rows)
    with tempfile.TemporaryDirectory() as state:
        job = from_rows({"a": Rows(x, y, x[:1], y[:1])}, (), Path(state))["a"]
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
        STEPS[OpenStreamRequest](
            job, OpenStreamRequest(norm=4.0, target_low=0.0, target_span=1.0, loss=Loss.SQUARED, seed=1)
        )
        dictionary = Dictionary(default_lengthscales(num_kernels), d, ROW_COLUMNS, 1)
        draw = DrawDictionaryRequest(
            dictionary=dictionary,
            mixing=Mixing.ADAPTIVE,
            weight_learning_rate=0.0,
            bin_size=(num_kernels + 1) // 2,
            exploration=1.0,
            regularisation=0.0,
        )
        STEPS[DrawDictionaryRequest](job, draw)
        theta = 0.01 * random.normal(size=(num_kernels, 2 * d))
        every = np.arange(num_kernels, dtype=np.uint8)
        seconds = 0.0
        for t in range(1, num_rows + 1):
            request = OnlineStepRequest(
                round_num=t, base=-1, num_features=2 * d, kernels=every, theta=theta, batch_rows=1, wait_s=0.0
            )
            start = time.thread_time()
            STEPS[OnlineStepRequest](job, request)
            if t > num_rows // 4:
                seconds += time.thread_time() - start
        return seconds / (num_rows - num_rows // 4)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=320)
    parser.add_argument("--only", choices=["network", "steps"])
    args = parser.parse_args()
    if args.only != "network":
        print("processor time of a client's step, ms")
        sizes = (9, 20, 50, 100)
        print(f"{'N':>6}" + "".join(f"{f'D = {d}':>10}" for d in sizes))
        for n in (11, 51, 101, 201):
            print(f"{n:>6}" + "".join(f"{1e3 * step_seconds(n, d):>10.3f}" for d in sizes), flush=True)
    if args.only != "steps":
        online, num_bytes = asyncio.run(network(args.clients, args.rounds, 25, 20))
        limit = session_limit(args.clients, num_bytes, args.rounds)
        print(f"\n{args.clients} clients, M = 25, D = 20, {num_bytes} bytes sent per client and round")
        print(f"online  {online:8.1f} rounds/s\nsession {limit:8.1f} rounds/s, which only echoes")
        print(f"share   {online / limit:8.2f}")


if __name__ == "__main__":
    main()
