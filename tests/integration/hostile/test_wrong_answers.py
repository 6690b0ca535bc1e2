"""A client whose answers are of another step, round or job, late, doubled or broken, ends no job without a word."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from kernfed.federation.events import EventKind, JobState
from kernfed.methods.registry import METHODS
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed_testing.federation import Ended, Federation
from kernfed_testing.hostile import peers as hostile
from kernfed_testing.hostile.peers import TRIO
from kernfed_testing.hostile.scripted_client import ScriptedClient
from kernfed_testing.methods.installed import STREAMING

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.redteam]
no_trace = hostile.no_trace

STREAM = '[policy]\nmin_rows = 1\n[datasets.default.stream]\npath = "train.csv"'
JOBS: dict[str, dict[str, Any]] = {
    "dkrr": {},
    "newton": {"rounds": 3, "loss": "squared"},
    "fedavg": {"rounds": 4},
    "personalise": {"num_frequencies": 10},
    "reweight": {"rounds": 3},
    "em-kofl": {"rounds": 6, "batch_rows": 4, "wait_s": 0.05, "num_kernels": 4},
}
"""One of each way of asking: a step, gradients, updates, steps of a client's own, many set-up steps, a stream."""
REASONS = ("", "JOB_STATE_MISSING", "UNPROVEN_JOB", "REVOKED", "INTERNAL", "no such reason", "x" * 10_000, "\x1b[2J")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """Two are honest; the third comes as a scripted client."""
    root = tmp_path_factory.mktemp("wrong")
    async with Federation(
        root, TRIO, idle=["mallory"], heartbeat_s=(0.3, 30.0), settings=dict.fromkeys(TRIO, STREAM)
    ) as made:
        yield made


class Wanderer:
    """Answers each task in one of many wrong ways, by a seed; now and then as it should."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._honest: list[tuple[str, Any]] = []
        self.ways: set[str] = set()

    async def __call__(self, client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        """Misbehave; see `Misbehave`."""
        others = [other for other in self._honest if type(other[1]) is not type(reply)] or [("job/0/x", reply)]
        earlier = self._honest[-1][0] if self._honest else f"{task.job_id}/99/{task.step}"
        self._honest.append((task.task_id, reply))
        ways: dict[str, Callable[[], Any]] = {
            "honest": lambda: client.send_reply(task.task_id, reply),
            "of another step": lambda: client.send_reply(task.task_id, self._draw.choice(others)[1]),
            "of an earlier round": lambda: client.send_reply(
                task.task_id, next((r for _, r in self._honest if type(r) is type(reply)), reply)
            ),
            "to an earlier task": lambda: client.send_reply(earlier, reply),
            "to another job": lambda: client.send_reply(f"other{task.task_id}", reply),
            "to another round": lambda: client.send_reply(f"{task.job_id}/77/{task.step}", reply),
            "silent": lambda: asyncio.sleep(0),
            "failed": lambda: self._fail(client, task.task_id),
            "twice": lambda: self._both(
                client.send_reply(task.task_id, reply), client.send_reply(task.task_id, others[0][1])
            ),
            "failed, then answered": lambda: self._both(
                self._fail(client, task.task_id), client.send_reply(task.task_id, reply)
            ),
            "answered, then failed": lambda: self._both(
                client.send_reply(task.task_id, reply), self._fail(client, task.task_id)
            ),
            "another's failure": lambda: self._both(
                self._fail(client, f"other{task.task_id}"), client.send_reply(task.task_id, reply)
            ),
            "announced and never sent": lambda: client.announce(task.task_id, reply, 1000 + len(self._honest)),
        }
        way = self._draw.choice(["honest", *ways])
        self.ways.add(way)
        await ways[way]()
        return False

    async def _fail(self, client: ScriptedClient, task_id: str) -> None:
        failure = task_pb2.TaskFailure(task_id=task_id, reason=self._draw.choice(REASONS), message="\x1b[2J\u202e" * 9)
        await client.send(pb.ConnectRequest(failure=failure))

    @staticmethod
    async def _both(first: Any, second: Any) -> None:
        await first
        await second


async def wander(fed: Federation, method: str, seed: int) -> tuple[Ended, Wanderer]:
    """Run a job of a method with a wanderer among three clients."""
    settings = {"cohort_min_clients": 2, "cohort_deadline_s": 0.3, "cohort_grace_s": 0.1, "cohort_wait_s": 2.0}
    text = f"report = false\n{fed.job(method, TRIO, **JOBS[method], **settings)}"
    if method in STREAMING:  # it has kernels of its own
        text = text.partition("[features]")[0]
    wanderer = Wanderer(seed)
    async with ScriptedClient(fed.client_folder("mallory"), fed.ports.federation, misbehave=wanderer):
        await fed.wait_connected(*TRIO)
        ended = await fed.run(text)
    await fed.wait_disconnected("mallory")
    return ended, wanderer


@pytest.mark.parametrize("method", [name for name in JOBS if name in METHODS])
async def test_answers_of_every_wrong_kind(fed: Federation, method: str) -> None:
    """The job ends, succeeded or with a reason that is one; nobody else is blamed, and the honest go on afterwards."""
    for seed in range(2):
        ended, _ = await wander(fed, method, seed)
        told = (seed, ended.info.error_reason, ended.info.error_message)
        assert ended.info.error_reason not in ("INTERNAL", "STEP_FAILED"), told
        assert "\x1b" not in ended.info.error_message, told
        assert ended.info.state is JobState.SUCCEEDED or ended.info.error_message, told
        assert {e.client for e in ended.of(EventKind.CLIENT_FAILED)} <= {"mallory"}, told
    assert fed.sessions.present() >= {"a", "b"}


async def test_answers_to_another_request(fed: Federation) -> None:
    """Who says over and over that it answers another request is asked a few times anew, then it is out of the step."""
    asked: list[str] = []

    async def another(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        asked.append(task.task_id)
        if len(asked) % 2:
            failure = task_pb2.TaskFailure(task_id=task.task_id, reason="INVALID_DATA", request_sha256=b"x" * 32)
            await client.send(pb.ConnectRequest(failure=failure))
            return False
        payload = encode(reply)
        proto = task_pb2.Payload(header=payload.header, body_size=payload.body_size, inline_body=payload.body())
        answer = task_pb2.TaskReply(task_id=task.task_id, payload=proto, request_sha256=b"x" * 32)
        await client.send(pb.ConnectRequest(reply=answer))
        return False

    async with ScriptedClient(fed.client_folder("mallory"), fed.ports.federation, misbehave=another):
        await fed.wait_connected(*TRIO)
        text = fed.job("probe", TRIO, rounds=1, payload_bytes=800, cohort_min_clients=2, cohort_deadline_s=20.0)
        ended = await fed.run(f"report = false\n{text}")
    await fed.wait_disconnected("mallory")
    assert ended.info.state is JobState.SUCCEEDED
    assert max(asked.count(task_id) for task_id in asked) <= 4
    assert {e.client for e in ended.of(EventKind.CLIENT_FAILED)} == {"mallory"}


async def test_a_client_that_lacks_its_state_for_ever(fed: Federation) -> None:
    """Who was prepared, and says over and over that it was not, is asked a few times, and then out of the step."""
    asked: list[str] = []

    async def unprepared(client: ScriptedClient, task: task_pb2.Task, _reply: Any) -> bool:
        if task.step != "fedavg.local_update":
            return True
        asked.append(task.task_id)
        failure = task_pb2.TaskFailure(task_id=task.task_id, reason="JOB_STATE_MISSING", message="nothing is here")
        await client.send(pb.ConnectRequest(failure=failure))
        return False

    async with ScriptedClient(fed.client_folder("mallory"), fed.ports.federation, misbehave=unprepared):
        await fed.wait_connected(*TRIO)
        text = fed.job("fedavg", TRIO, rounds=2, learning_rate=0.1, cohort_min_clients=2, cohort_deadline_s=60.0)
        ended = await fed.run(f"report = false\n{text}")
    await fed.wait_disconnected("mallory")
    assert ended.info.state is JobState.SUCCEEDED
    assert len(asked) == len(set(asked)) == 2 * 4
    assert [e.client for e in ended.of(EventKind.CLIENT_FAILED)] == ["mallory"] * 2
