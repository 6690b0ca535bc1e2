"""More readers to bend input for: identities, what a coordinator sends, streams."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from kernfed.federation.messages.base import Reply
from kernfed.federation.messages.catalogue import Requests
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule, StandardiseRequest
from kernfed.jobs.client_file import StreamFile
from kernfed.pki import folder as files
from kernfed.pki.authority import make_csr, new_key, public_key_of_csr, utc_now
from kernfed.pki.identity import Identity
from kernfed.pki.names import principal_of
from kernfed.pki.submission import prove, sign_job
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon import connection
from kernfed_client.daemon.tasks import TaskRunner
from kernfed_client.streams.folder import FolderStream
from kernfed_client.streams.streams import Position
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.keeping.checkpoints import read_checkpoint, write_checkpoint
from kernfed_testing.identities import make_identities

Read = Callable[[bytes], object]


def identity_readers(folder: Path) -> dict[str, tuple[tuple[bytes, ...], Read]]:
    """Certificates, keys and requests to sign: from a disk, or from whoever enrols."""
    identities = make_identities(folder / "identities")
    good = identities.client("a")
    bent = folder / "bent"
    shutil.copytree(good, bent)

    def one(name: str) -> Read:
        def read(data: bytes) -> None:
            shutil.copytree(good, bent, dirs_exist_ok=True)
            (bent / name).write_bytes(data)
            Identity.load(bent)

        return read

    def certificate(data: bytes) -> None:
        principal_of(files.parse_certificate(data, Path("sent.pem")))

    readers: dict[str, tuple[tuple[bytes, ...], Read]] = {
        f"identity-{name}": ((good.joinpath(name).read_bytes(),), one(name))
        for name in (files.CERT, files.KEY, files.CA, files.ABOUT)
    }
    readers["certificate"] = ((good.joinpath(files.CERT).read_bytes(),), certificate)
    readers["signing-request"] = ((make_csr(new_key(), "a"),), public_key_of_csr)
    return readers


def task_readers(folder: Path) -> dict[str, tuple[tuple[bytes, ...], Read]]:
    """What a coordinator sends to a client: frames, and the requests that it keeps."""
    request = StandardiseRequest(classes=("no", "yes"), mean=np.zeros(2), deviation=np.ones(2), median_distance=False)
    task = task_pb2.Task(
        task_id="job/1/x", job_id="job", step=request.step, payload=payload_to_proto(encode(request), 1), float_bits=64
    )
    runner = TaskRunner(
        Requests([StandardiseRequest]),
        lambda: {StandardiseRequest: _no_step},
        _no_job,
        _forget,
        _forget,
        _forget,
        folder / "tasks",
        1 << 20,
    )

    def frame(data: bytes) -> None:
        parsed = connection.parse(data)
        if parsed.HasField("task"):
            incoming = runner.incoming(parsed.task)
            if incoming.complete:
                incoming.message()

    welcome = pb.ConnectResponse(welcome=pb.Welcome())
    sent = (pb.ConnectResponse(task=task).SerializeToString(), welcome.SerializeToString())
    return {"task-frame": (sent, frame)}


def coordinator_readers(folder: Path) -> dict[str, tuple[tuple[bytes, ...], Read]]:
    """What a coordinator reads back after a crash, and what an operator signed."""
    state = {"weights": np.ones((4, 1)), "round": np.array([3])}
    name, sha256 = write_checkpoint(folder / "checkpoints", "job", Checkpoint(3, state))
    path = folder / "checkpoints" / name
    good = path.read_bytes()

    def checkpoint(data: bytes) -> None:
        path.write_bytes(data)
        read_checkpoint(path, 3, sha256)

    identities = make_identities(folder / "signed")
    text = 'name = "demo"\n[method]\nname = "probe"\n'
    ca = identities.pki.authority.certificate

    def submission(data: bytes) -> None:
        try:
            parsed = task_pb2.Submission.FromString(data)
        except DecodeError:
            return  # grpc refuses it
        prove(parsed, text, ca, identities.pki.federation, utc_now())

    signed = sign_job(text, Identity.load(identities.operator), utc_now()).SerializeToString()
    return {"checkpoint": ((good,), checkpoint), "submission": ((signed,), submission)}


def stream_readers(folder: Path) -> dict[str, tuple[tuple[bytes, ...], Read]]:
    """Rows that arrive while a job learns."""
    schema = DataSchema(
        task=LearningTask.REGRESSION,
        target="y",
        features=("a", "b"),
        classes=(),
        missing=MissingRule.REFUSE,
        test_fraction=0.0,
        seed=1,
    )

    def reader(name: str) -> Read:
        rows = folder / f"stream-{Path(name).suffix[1:]}"
        rows.mkdir()

        def read(data: bytes) -> None:
            (rows / name).write_bytes(data)
            stream = FolderStream(
                rows, StreamFile.model_validate({"path": rows, "source": "follow", "key": "k"}), schema, "sensors", ()
            )
            position: Position = {}
            for _ in range(1000):
                chunk = stream.read(position, 5)
                position = json.loads(json.dumps(chunk.position))
                if not chunk.rows:
                    return
            raise AssertionError("a stream that does not end")

        return read

    csv = b"k,a,b,y\nk1,1,2,3\nk2,4,5,\n,,,\nk2,,,6\n"
    lines = b'{"k": "k1", "a": 1, "b": 2.5, "y": 3}\n{"k": 7, "a": 1, "b": 2}\n{"k": 7, "y": null}\n'
    return {"stream-csv": ((csv,), reader("a.csv")), "stream-jsonl": ((lines,), reader("a.jsonl"))}


def _forget(*_arguments: object) -> None:
    return None


def _no_step(*_arguments: object) -> Reply:
    raise AssertionError("no step runs here")


def _no_job(*_arguments: object) -> object:
    raise AssertionError("no step runs here")
