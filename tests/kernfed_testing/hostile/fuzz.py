"""Everything that reads bytes from a peer or a file, as functions of bytes, with good examples to bend.

Whatever the bytes, a reader returns or raises a `KernfedError`. Anything else is a bug; what found one is kept in
tests/corpus and read again in every test run.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernfed.errors import KernfedError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import PartitionFile, load_client_file
from kernfed.jobs.job_file import parse_job
from kernfed.methods.distill.public_set import pack, read_points, unpack
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.methods.ridge.messages import LocalModel
from kernfed.models.global_model import load_model
from kernfed.pki.tokens import Token, decode_token, encode_token, new_secret
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import decode, encode
from kernfed.wire.frames import REQUEST_FRAGMENT_TAG, RESPONSE_FRAGMENT_TAG, decode_fragment, encode_fragment
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon.audit import AuditLog
from kernfed_client.daemon.audit_chain import verify
from kernfed_client.daemon.audit_report import summarise
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.data.reading.partitions import read_partition
from kernfed_server.config import load_coordinator_file
from kernfed_testing.hostile.fuzz_site import coordinator_readers, identity_readers, stream_readers, task_readers
from kernfed_testing.in_process import bench, make_job, regression_rows

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
SCHEMA = DataSchema(
    task=LearningTask.REGRESSION,
    target="y",
    features=("x0", "x1"),
    classes=(),
    missing=MissingRule.REFUSE,
    test_fraction=0.2,
    seed=1,
)
TOKENS = [
    b"\xff",
    b"\x00",
    b"-1",
    b"1e999",
    b"nan",
    b'"',
    b"[",
    b"]",
    b"{",
    b"=",
    b"\n",
    b",",
    b"\xef\xbb\xbf",
    b"9" * 30,
]


@dataclass(frozen=True)
class Target:
    """A reader of bytes."""

    examples: tuple[bytes, ...]
    """Good input."""
    read: Callable[[bytes], object]
    """Returns, or raises a KernfedError."""

    def feed(self, data: bytes) -> bool:
        """Read; whether it was taken for good.

        Raises:
            BaseException: A bug.
        """
        with contextlib.suppress(KernfedError):
            self.read(data)
            return True
        return False


def bend(draw: random.Random, examples: tuple[bytes, ...]) -> bytes:
    """A good example with a few changes: bytes, cuts, repeats, splices, telling tokens."""
    data = bytearray(draw.choice(examples))
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 2, 8, 64)))
        match draw.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at:end] = draw.randbytes(end - at)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end]
            case 4:
                data[at:end] = draw.choice(TOKENS)
            case _:
                other = draw.choice(examples)
                start = draw.randrange(len(other) + 1)
                data[at:end] = other[start : start + draw.randrange(1, 65)]
    return bytes(data)


def targets(folder: Path) -> dict[str, Target]:
    """All readers, by name.

    Args:
        folder: Empty; files are written there to be read.
    """
    made = {
        "fragment": _fragment(),
        "reply-frame": _reply_frame(),
        "payload": _payload(),
        "token": _token(),
        "public-set": Target((pack(np.random.default_rng(1).normal(size=(9, 2))),), lambda data: unpack(data, 2)),
    }
    made |= _toml(folder) | _partitions(folder) | _model(folder) | _state(folder)
    more = identity_readers(folder) | task_readers(folder) | stream_readers(folder) | coordinator_readers(folder)
    return made | {name: Target(good, read) for name, (good, read) in more.items()}


def _fragment() -> Target:
    good = tuple(
        encode_fragment(tag, 3, offset, [memoryview(bytes(64))])
        for tag in (REQUEST_FRAGMENT_TAG, RESPONSE_FRAGMENT_TAG)
        for offset in (0, 1 << 40)
    )

    def read(data: bytes) -> None:
        decode_fragment(REQUEST_FRAGMENT_TAG, data)
        decode_fragment(RESPONSE_FRAGMENT_TAG, data)

    return Target(good, read)


def _reply_frame() -> Target:
    payload = encode(Echo(num_rows=1, values=np.arange(5.0)))
    reply = task_pb2.TaskReply(task_id="job/1/probe.echo", payload=payload_to_proto(payload, 0), compute_s=0.1)

    def read(data: bytes) -> None:
        from kernfed_server.services.federation import _parse

        frame = _parse(data)
        if frame.HasField("reply"):
            incoming = IncomingPayload(Echo, frame.reply.payload, 1 << 20, {})
            if incoming.complete:
                incoming.message()

    return Target((pb.ConnectRequest(reply=reply).SerializeToString(),), read)


def _payload() -> Target:
    payload = encode(LocalModel(num_rows=9, weights=np.ones((4, 1))))

    def read(data: bytes) -> None:
        decode(LocalModel, data[: len(payload.header)], memoryview(data[len(payload.header) :]))

    return Target((payload.header + payload.body(),), read)


def _token() -> Target:
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    token = Token("fed.example.org:8471", "hearts", "a", "ab" * 32, new_secret(), expires)
    return Target((encode_token(token).encode(),), lambda data: decode_token(data.decode("utf-8", "replace")))


def _toml(folder: Path) -> dict[str, Target]:
    job = b"""name = "n"
seed = 3
[method]
name = "fedavg"
rounds = 3
learning_rate = 0.5
[cohort]
clients = ["a", "b"]
min_clients = 2
[data]
task = "binary"
target = "y"
features = ["x0", "x1"]
classes = ["no", "yes"]
[features]
num_frequencies = 20
lengthscale = [1.0, 2]
"""
    client = b"""coordinator = "fed.example.org:8470"
device = "cpu"
[datasets.heart.train]
path = "t.csv"
columns = { a = "b" }
[models.heart]
kind = "scikit-learn"
class_name = "sklearn.ensemble.RandomForestClassifier"
parameters = { n_estimators = 300 }
[policy]
min_rows = 20
allow = ["summary", "gradient"]
"""
    coordinator = b'listen = "127.0.0.1:0"\npki = "pki"\nheartbeat_interval_s = 5.0\nmax_body_bytes = 1048576\n'

    def from_file(load: Callable[[Path], object]) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            (folder / "file.toml").write_bytes(data)
            return load(folder / "file.toml")

        return read

    return {
        "job-file": Target((job,), lambda data: parse_job(data.decode("utf-8", "replace"))),
        "client-file": Target((client,), from_file(load_client_file)),
        "coordinator-file": Target((coordinator,), from_file(load_coordinator_file)),
    }


def _partitions(folder: Path) -> dict[str, Target]:
    x = np.random.default_rng(2).normal(size=(12, 2))
    y = x.sum(axis=1)
    lines = ["x0,x1,y", *(f"{a!r},{b!r},{c!r}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True))]
    npz, compressed, parquet = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(npz, x=x, y=y)
    np.savez_compressed(compressed, x=x, y=y, columns=np.array(["x0", "x1"]))
    pq.write_table(pa.table({"x0": x[:, 0], "x1": x[:, 1], "y": y}), parquet)
    quoted = '"x0";"x1";y\r\n"1,5";2;3\r\n'.encode("utf-16")
    examples = {
        "csv": ("\n".join(lines).encode(), b"x0,x1,y\n1,2,3\n\n?,1,NA\n", quoted),
        "npz": (npz.getvalue(), compressed.getvalue()),
        "parquet": (parquet.getvalue(),),
    }

    def reader(kind: str) -> Callable[[bytes], object]:
        path = folder / f"data.{kind}"

        def read(data: bytes) -> object:
            path.write_bytes(data)
            return read_partition(PartitionFile(path=path), SCHEMA, "default", "train")

        return read

    def public_reader(kind: str) -> Callable[[bytes], object]:
        path = folder / f"public.{kind}"

        def read(data: bytes) -> object:
            path.write_bytes(data)
            return read_points(path, ("x0", "x1"))

        return read

    return {kind: Target(good, reader(kind)) for kind, good in examples.items()} | {
        f"public-{kind}": Target(good[:2], public_reader(kind)) for kind, good in examples.items()
    }


def _model(folder: Path) -> dict[str, Target]:
    good = folder / "model"
    model = bench(regression_rows({"a": 30, "b": 30}), folder / "state").run(make_job("dkrr", frequencies=4)).model
    assert model is not None
    model.save(good)
    kept = {name: (good / name).read_bytes() for name in ("model.json", "model.safetensors")}

    def reader(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            for other, content in kept.items():
                (good / other).write_bytes(data if other == name else content)
            return load_model(good)

        return read

    return {name: Target((content,), reader(name)) for name, content in kept.items()}


def _state(folder: Path) -> dict[str, Target]:
    log = folder / "log" / "audit.jsonl"
    audit = AuditLog(log)
    reply = Echo(num_rows=1, values=np.ones(3))
    for i in range(3):
        audit.record(
            job_id="j",
            task_id=f"t{i}",
            step="probe.echo",
            operator="ann",
            submission=None,
            revocations=None,
            kinds=(),
            request=EchoRequest(values=np.ones(3)),
            request_sha256=bytes(32),
            reply=reply,
            header=b"h",
            body=[b"b"],
            num_bytes=2,
            num_numbers=3,
        )
    audit.close()
    store = ReplyStore(folder / "outbox", "")
    for i in range(3):
        store.put(task_pb2.Task(job_id="j", task_id=f"t{i}"), encode(reply), 0.1)
    store.close()
    journal = next((folder / "outbox").rglob("journal"))

    def read_log(data: bytes) -> None:
        log.write_bytes(data)
        summarise(log)
        verify(log)

    def read_journal(data: bytes) -> None:
        journal.write_bytes(data)
        again = ReplyStore(folder / "outbox", "")
        for found in again.restore():
            decode(Echo, found.payload.header, memoryview(b"".join(found.payload.segments())))
        again.close()

    return {
        "audit-log": Target((log.read_bytes(),), read_log),
        "reply-journal": Target((journal.read_bytes(),), read_journal),
    }
