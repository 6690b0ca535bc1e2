"""Writes frames.json: what every message is on the wire, by the code that this runs with.

The file holds what an earlier release sent, so that later ones can be held against it: write it from a copy of that
release, never to make a test pass::

    PYTHONPATH=tests .venv/bin/python tests/golden/record_frames.py SOURCE
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
from google.protobuf import json_format
from pydantic import TypeAdapter

from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics
from kernfed.federation.messages.base import validate
from kernfed.jobs.info import ArtifactInfo, ClientInfo, JobInfo, JobUpdate, NumberedEvent
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import RESPONSE_FRAGMENT_TAG
from kernfed.wire.operator import artifact_to_proto, client_to_proto, event_to_proto, job_to_proto, update_to_proto
from kernfed.wire.outgoing import Body
from kernfed.wire.payload import CHUNK_BYTES
from kernfed_client.daemon.outbox import Outbox
from kernfed_testing import recorded_frames as frames

WHEN = datetime(2026, 3, 4, 5, 6, 7, 891_000, tzinfo=UTC)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _steps() -> dict[str, Any]:
    found = {}
    for step, cls in sorted(frames.requests().items()):
        request = frames.example(cls)
        reply = frames.example(cls.reply, validate(request, {}))
        found[step] = {
            "kinds": [kind.value for kind in cls.kinds],
            "setup": cls.setup,
            "request": f"kernfed.v1.{cls.__name__}",
            "reply": f"kernfed.v1.{cls.reply.__name__}",
            "request_fields": frames.to_plain(request),
            "reply_fields": frames.to_plain(reply),
            "request_frame": _text(frames.task_frame(request)),
            "reply_frame": _text(frames.reply_frame(step, reply)),
            "reply_frame_float32": _text(frames.reply_frame(step, reply, 32)),
        }
    return found


def _protobuf() -> list[dict[str, Any]]:
    return [
        {
            "message": name,
            "fields": json_format.MessageToDict(message, preserving_proto_field_name=True),
            "bytes": _text(message.SerializeToString(deterministic=True)),
        }
        for name, descriptor in sorted(frames.proto_types().items())
        for message in frames.proto_examples(descriptor)
    ]


def _fragments() -> dict[str, Any]:
    numbers = 2 * CHUNK_BYTES // 8 + 1000
    step, cls = "probe.echo", frames.requests()["probe.echo"]
    reply = cls.reply(num_rows=1, values=np.arange(numbers, dtype=float))  # type: ignore[call-arg]  # of this step
    body = Body(RESPONSE_FRAGMENT_TAG, 300, encode(reply))
    made = [body.frame(offset, shared=False) for offset in range(0, body.size, CHUNK_BYTES)]
    return {
        "reply": step,
        "numbers": numbers,
        "announced": _text(frames.reply_frame(step, reply)),
        "transfer": 300,
        "sha256": [hashlib.sha256(frame).hexdigest() for frame in made],
    }


def _failure() -> str:
    outbox = Outbox()
    outbox.add_failure(
        "job-1", task_pb2.TaskFailure(task_id="job-1/2/x", reason="INVALID_DATA", message="a.csv: row 3")
    )
    return _text(outbox.frame("job-1/2/x")[0])


def _operator() -> list[dict[str, Any]]:
    job = JobInfo(
        *("heart-newton-x7", "heart-newton", "newton", JobState.FAILED, "ann", WHEN),
        started_at=WHEN.replace(minute=7),
        finished_at=WHEN.replace(minute=8),
        round_num=3,
        num_rounds=30,
        clients=("cleveland", "va"),
        error_reason="QUORUM_NOT_MET",
        error_message="1 of 2 clients answered",
        waiting_for="waiting: 1 of 2",
        job_toml='name = "heart-newton"\n',
    )
    client = ClientInfo(
        "cleveland",
        connected=True,
        datasets=("heart", "lung"),
        device="cpu",
        software_version="0.1.0",
        certificate_expires_at=WHEN,
        peer="ipv4:127.0.0.1:1",
        last_seen_at=WHEN,
        job_ids=("heart-newton-x7",),
    )
    metrics = RoundMetrics(
        {"global": {"auc": 0.75, "mse": 0.1}, "local": {"auc": 0.7}},
        {"cleveland": {"global": {"auc": 0.7}, "personal": {"auc": 0.8}}, "va": {"global": {"auc": 0.6}}},
        {"distance": 1e-9},
    )
    events = [
        NumberedEvent(i, WHEN, JobEvent(kind, 2, "newton.step", "va", text, metrics=metrics if closes else None))
        for i, kind in enumerate(EventKind, 1)
        for closes, text in [(kind is EventKind.ROUND_CLOSED, f"of {kind.value}")]
    ]
    waiting = JobInfo("heart-newton-x8", "heart-newton", "newton", JobState.QUEUED, "ann", WHEN)
    return [
        *[{"message": "Job", "fields": _plain(i), "bytes": _text(_bytes(job_to_proto(i)))} for i in (job, waiting)],
        {"message": "Client", "fields": _plain(client), "bytes": _text(_bytes(client_to_proto(client)))},
        *[{"message": "Event", "fields": _plain(e), "bytes": _text(_bytes(event_to_proto(e)))} for e in events],
        *[
            {"message": "WatchJobResponse", "fields": _plain(u), "bytes": _text(_bytes(update_to_proto(u)))}
            for u in (JobUpdate(events[0], job), JobUpdate(job=waiting), JobUpdate(events[-1]))
        ],
        *[
            {"message": "Artifact", "fields": _plain(a), "bytes": _text(_bytes(artifact_to_proto(a)))}
            for a in [ArtifactInfo("model.safetensors", 1234, "0" * 64)]
        ],
    ]


def _plain(value: Any) -> Any:
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def _bytes(message: Any) -> bytes:
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def main() -> None:
    """Write the file."""
    recorded = {
        "source": sys.argv[1],
        "made_by": "tests/golden/record_frames.py",
        "steps": _steps(),
        "protobuf": _protobuf(),
        "fragments": _fragments(),
        "failure": _failure(),
        "operator": _operator(),
    }
    sections = [f"{json.dumps(key)}: {_lines(value)}" for key, value in recorded.items()]
    frames.GOLDEN.write_text("{\n" + ",\n".join(sections) + "\n}\n")


def _lines(value: Any) -> str:
    """JSON with one entry a line."""
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(f" {json.dumps(v)}" for v in value) + "\n]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
