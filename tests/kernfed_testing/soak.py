"""Jobs of every method in a federation of processes, each disturbed at a random moment and compared with its twin.

A twin is the same job left in peace. Compared is the SHA-256 of every model that a job leaves.
Every draw comes from one seed, but for the moment at which a fault meets a running job, which depends on the machine.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.artifact_names import CHECKPOINT
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_testing.federation import COLUMNS, Ended, Federation
from kernfed_testing.proxy import Direction

CLIENTS = ("a", "b", "c")
ONLINE = {"online", "ofskl", "ofmkl-avg", "vm-kofl", "em-kofl", "perfedavg"}
ITERATIVE = {"newton", "fedavg", "fedprox"}
LINE_DELAY_S = 0.01
"""Per piece on every line, so that a small job lasts long enough to be disturbed."""

Say = Callable[[str], None]


@dataclass
class Result:
    """What a soak came to."""

    finished: int = 0
    faults: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    """Jobs that ended otherwise than their twins."""

    def line(self, jobs: int) -> str:
        """The one line that counts."""
        same = "every final model has the SHA-256 of its undisturbed twin"
        told = same if not self.different else f"DIFFERENT: {'; '.join(self.different)}"
        return f"{self.finished} of {jobs} jobs finished, {len(self.faults)} faults injected, {told}"


def federation(root: Path) -> Federation:
    """Three clients behind proxies and a coordinator, all processes."""
    settings = dict.fromkeys(CLIENTS, "[policy]\nmin_rows = 1")
    return Federation(root, CLIENTS, processes=True, proxied=CLIENTS, settings=settings, heartbeat_s=(0.2, 2.0))


def is_model(name: str) -> bool:
    """Whether an artifact is a model, which two runs must leave alike; a checkpoint also tells what happened."""
    return name.endswith(".safetensors") and name != CHECKPOINT


async def job_text(fed: Federation, method: str) -> str:
    """A small job of a method; what it names is uploaded."""
    if method in ONLINE or method == "distill":
        lines = ["name = 'soak'", "seed = 3", "[method]", f'name = "{method}"', "rounds = 8"]
        if method == "online":
            lines += ["num_kernels = 5", "kernels_per_round = 2", "num_frequencies = 8"]
        if method == "distill":
            lines += ['public = "public.csv"', "tolerance = 0.0"]
        cohort = ["[cohort]", f"clients = {json.dumps(CLIENTS)}", "min_clients = 3"]
        data = ["[data]", 'task = "regression"', 'target = "y"', f"features = {json.dumps(COLUMNS)}"]
        text = "\n".join([*lines, *cohort, *data]) + "\n"
        if method == "distill":
            points = np.random.default_rng(7).normal(size=(30, len(COLUMNS)))
            rows = [",".join(map(repr, point)) for point in points.tolist()]
            (fed.root / "public.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
            _, text, files = attach_files(parse_job(text), text, fed.root)
            for content in files.values():
                await fed.operator.upload(content)
        return text
    settings: dict[str, Any] = {"rounds": 12} if method in ITERATIVE else {}
    if method == "reweight":
        settings = {"scope": "own"}  # these clients' policies let no samples leave
    if method in ("fedsophia", "fednew"):
        settings = {"rounds": 12, "loss": "squared"}
    if method == "probe":
        settings = {"rounds": 4, "payload_bytes": 400_000}
    return fed.job(method, cohort_min_clients=3, **settings)


class Soak:
    """One soak over a federation that is up."""

    def __init__(self, fed: Federation, seed: int, say: Say) -> None:
        self._fed = fed
        self._random = random.Random(seed)
        self._say = say
        self._twins: dict[str, tuple[dict[str, str], float]] = {}
        self.result = Result()

    async def run(self, num_jobs: int, methods: tuple[str, ...] = tuple(WORKFLOWS)) -> Result:
        """Run jobs, the methods in turn."""
        for proxy in self._fed.proxies.values():
            proxy.delay_s = LINE_DELAY_S
        for i in range(num_jobs):
            method = methods[i % len(methods)]
            if method not in self._twins:
                began = time.monotonic()
                twin = await self._end(await self._submit(method))
                self._twins[method] = await self._digests(twin), time.monotonic() - began
                if twin.info.state is not JobState.SUCCEEDED:
                    raise AssertionError(f"{method} fails undisturbed: {twin.info.error_message}")
            await self._disturbed(i + 1, method)
        return self.result

    async def _disturbed(self, number: int, method: str) -> None:
        twin, took_s = self._twins[method]
        for attempt in range(4):
            name, fault = self._draw()
            job_id = await self._submit(method)
            await asyncio.sleep(self._random.uniform(0.0, 0.8) * took_s / 2**attempt)
            hit = not (await self._fed.operator.get(job_id)).state.finished
            await fault()
            ended = await self._end(job_id)
            if hit:
                break
        found = await self._digests(ended)
        same = ended.info.state is JobState.SUCCEEDED and found == twin and self._once(ended)
        self.result.finished += ended.info.state is JobState.SUCCEEDED
        if hit:
            self.result.faults.append(name)
        if not same:
            self.result.different.append(f"job {number} ({method}, {name}): {ended.info.error_message or found}")
        self._say(f"{number:3} {method:10} {name:28} {'same' if same else 'DIFFERENT'}{'' if hit else ' (missed)'}")

    @staticmethod
    def _once(ended: Ended) -> bool:
        answered = [e for e in ended.of(EventKind.NOTE) if "second, different reply" in e.message]
        return not answered

    def _draw(self) -> tuple[str, Callable[[], Awaitable[None]]]:
        """A fault and whom it meets."""
        fed, draw = self._fed, self._random
        name = draw.choice(CLIENTS)
        line = fed.proxies[name]
        direction = draw.choice(list(Direction))
        num_bytes = draw.randrange(0, 20_000)
        pause_s = draw.uniform(0.0, 1.0)

        async def kill_client() -> None:
            await fed.clients[name].kill()
            await asyncio.sleep(pause_s)
            await fed.clients[name].start()

        async def restart_client() -> None:
            await fed.clients[name].stop()
            await fed.clients[name].start()

        async def kill_coordinator() -> None:
            await fed.coordinator.kill()
            await asyncio.sleep(pause_s)
            await fed.start_coordinator()

        async def restart_coordinator() -> None:
            await fed.coordinator.stop()
            await fed.start_coordinator()

        async def cut() -> None:
            line.cut()

        async def cut_in_mid_transfer() -> None:
            line.cut_after(direction, num_bytes)

        async def half_close() -> None:
            line.half_close(direction)

        async def lose_a_direction() -> None:
            line.stall(direction)
            await asyncio.sleep(1.0 + 2 * pause_s)
            line.resume()

        faults = {
            f"kill {name}": kill_client,
            f"restart {name}": restart_client,
            "kill coordinator": kill_coordinator,
            "restart coordinator": restart_coordinator,
            f"cut line of {name}": cut,
            f"cut {direction.value} of {name} at {num_bytes}": cut_in_mid_transfer,
            f"half-close {direction.value} of {name}": half_close,
            f"lose {direction.value} of {name}": lose_a_direction,
        }
        return draw.choice(list(faults.items()))

    async def _submit(self, method: str) -> str:
        return (await self._fed.submit(await job_text(self._fed, method))).job_id

    async def _end(self, job_id: str) -> Ended:
        return await self._fed.end(job_id)

    async def _digests(self, ended: Ended) -> dict[str, str]:
        """Digests of the models that a job left; where it leaves none, of its metrics.

        Beside a model metrics are not compared: some count bytes. Those of a probe are times; it compares its numbers.
        """
        left = {a.name: a.sha256 for a in await self._fed.operator.artifacts(ended.info.job_id)}
        models = {name: digest for name, digest in left.items() if is_model(name)}
        return models or ({} if ended.info.method == "probe" else {"metrics.csv": left.get("metrics.csv", "")})
