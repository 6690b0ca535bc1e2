"""Identity over real sockets: each wrong peer has its own diagnosis."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import structlog

from kernfed.errors import (
    CertificateError,
    PermissionDeniedError,
    RevokedError,
    UnavailableError,
    WireError,
)
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import (
    Identity,
    Role,
)
from kernfed.pki.layer_checks import Layer
from kernfed.pki.renewal import renew
from kernfed.pki.tls_diagnosis import diagnose, diagnose_failure
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed_server.trust.revocations import RevocationWatch
from kernfed_testing.identities import Identities, make_identities
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.bare_coordinator import Coordinator, WhoAmI, ask, serving


@pytest.fixture
def ids(tmp_path: Path) -> Identities:
    return make_identities(tmp_path)


@pytest.fixture
async def coordinator(ids: Identities) -> AsyncIterator[Coordinator]:
    async with serving(ids) as running:
        yield running


async def failure_of(address: str, folder: Path, role: Role | None = None) -> Exception:
    """The diagnosis, within seconds."""
    identity = Identity.load(folder, check_dates=False)
    begin = time.monotonic()
    error = await asyncio.to_thread(diagnose_failure, address, identity, role=role)
    assert time.monotonic() - begin < LIMIT_S / 2
    assert ": " in str(error), "a diagnosis has a remedy"
    return error


async def test_mutual_tls_names_the_caller(coordinator: Coordinator, ids: Identities) -> None:
    """Client and operator are who their certificates say; a role that is not theirs is refused by name."""
    assert await coordinator.call(ids.client("cleveland")) == "client/cleveland"
    assert await coordinator.call(ids.operator) == "operator/ann"
    assert await coordinator.call(ids.operator, "/test/Operate") == "operator/ann"
    with pytest.raises(PermissionDeniedError, match=r"client/cleveland may not .* role operator"):
        await coordinator.call(ids.root / "client-cleveland", "/test/Operate")


async def test_all_is_well(coordinator: Coordinator, ids: Identities) -> None:
    """On a good line every layer is ok; no proxy stands before this machine."""
    findings = await asyncio.to_thread(diagnose, coordinator.address, Identity.load(ids.client()))
    layers = [layer for layer in Layer if layer is not Layer.PROXY]
    assert [f.layer for f in findings] == layers
    assert all(f.ok for f in findings)
    assert "admits it" in findings[layers.index(Layer.AUTHORISATION)].message


@pytest.mark.redteam
async def test_wrong_ca(coordinator: Coordinator, ids: Identities, tmp_path: Path) -> None:
    """A client of another federation sees both fingerprints; the coordinator refuses its certificate too."""
    stranger = make_identities(tmp_path / "other").client("stranger")
    with pytest.raises(UnavailableError):
        await coordinator.call(stranger)
    error = await failure_of(coordinator.address, stranger)
    assert type(error) is CertificateError
    assert "unknown issuer" in str(error)
    assert str(error).count("the CA ") == 2

    # A stranger who trusts our CA, but holds a certificate of its own: the coordinator says why it is refused.
    loaded = Identity.load(ids.client("good"))
    theirs = Identity.load(make_identities(tmp_path / "third").client("x"))
    outsider = dataclasses.replace(theirs, ca_pem=loaded.ca_pem, enrolment=loaded.enrolment)
    error = await asyncio.to_thread(diagnose_failure, coordinator.address, outsider)
    assert type(error) is CertificateError
    assert "refused our certificate" in str(error)
    assert "this federation's CA (hearts) did not sign" in str(error)


async def test_wrong_host_name(ids: Identities) -> None:
    """Dialling a name that is not in the coordinator's certificate lists those that are."""
    ids.pki.renew_folder(ids.coordinator, hosts=["fed.example.org"], only=True)
    async with serving(ids) as coordinator:
        folder = ids.client()
        with pytest.raises(UnavailableError):
            await coordinator.call(folder)
        error = await failure_of(coordinator.address, folder)
        assert type(error) is CertificateError
        assert "is for fed.example.org, not for localhost" in str(error)
        assert "pki renew coordinator --host localhost" in str(error)


@pytest.mark.parametrize(("days", "words"), [(-1, "expired on"), (1, "not valid before")])
async def test_our_certificate_is_out_of_date(coordinator: Coordinator, ids: Identities, days: int, words: str) -> None:
    """Expired and not yet valid are told apart, by our own clock and by the coordinator's."""
    begin = utc_now() + timedelta(hours=3) if days > 0 else None
    folder = ids.client(not_before=begin, days=days)
    with pytest.raises(UnavailableError):
        await coordinator.call(folder)
    error = await failure_of(coordinator.address, folder)
    assert type(error) is CertificateError
    assert words in str(error)

    # With our clock wrong as well, only the coordinator can tell; it says so and names the clocks.
    wrong = utc_now() + timedelta(hours=5 if days > 0 else -40)
    with structlog.testing.capture_logs() as logs:
        findings = await asyncio.to_thread(
            diagnose, coordinator.address, Identity.load(folder, check_dates=False), now=lambda: wrong
        )
    # A clock 40 h slow finds the coordinator's own certificate not begun yet, and says that instead.
    if days > 0:
        assert findings[-1].layer is Layer.MUTUAL_TLS
        assert "differ by" in findings[-1].message
        assert any(e.get("verdict") == "VERDICT_NOT_YET_VALID" for e in logs)
    else:
        assert findings[-1].layer is Layer.TLS
        assert "check this machine's clock" in findings[-1].remedy
    assert not findings[-1].ok


async def test_the_coordinator_logs_why_it_refuses(coordinator: Coordinator, ids: Identities) -> None:
    """A refused client asks the enrolment port; the coordinator's log then names it and the reason."""
    folder = ids.client("late", days=-1)
    identity = Identity.load(folder, check_dates=False)
    with structlog.testing.capture_logs() as logs:
        answer = await ask(coordinator, ids, pb.DiagnoseRequest(certificate_pem=identity.certificate_pem.decode()))
    assert answer.verdict == pb.VERDICT_EXPIRED
    (entry,) = [e for e in logs if e["event"] == "peer asks why it is refused"]
    assert "client/late" in entry["why"]
    assert entry["log_level"] == "warning"


@pytest.mark.parametrize(("days", "words"), [(-1, "expired on"), (1, "not valid before")])
async def test_the_coordinators_certificate_is_out_of_date(ids: Identities, days: int, words: str) -> None:
    """The coordinator's own expired or not yet valid certificate is told as such."""
    folder = ids.coordinator
    async with serving(ids) as coordinator:
        begin = utc_now() + timedelta(hours=3) if days > 0 else None
        ids.make(Role.COORDINATOR, "coordinator", not_before=begin, lifetime=timedelta(days=days), into=folder)
        error = await failure_of(coordinator.address, ids.client())
        assert type(error) is CertificateError
        assert "the coordinator's certificate" in str(error)
        assert words in str(error)


@pytest.mark.redteam
async def test_revoked(coordinator: Coordinator, ids: Identities) -> None:
    """A revoked client is refused on its next call, and its diagnosis says so."""
    folder = ids.client()
    assert await coordinator.call(folder) == "client/cleveland"
    told: asyncio.Queue[Any] = asyncio.Queue()
    coordinator.watch.on_revoked = lambda revocation, _: told.put_nowait(revocation)
    await asyncio.to_thread(ids.pki.revoke, "cleveland")
    assert (await asyncio.wait_for(told.get(), LIMIT_S)).name == "cleveland"
    with pytest.raises(RevokedError, match="was revoked"):
        await coordinator.call(folder)
    error = await failure_of(coordinator.address, folder)
    assert type(error) is RevokedError
    assert "new token" in str(error)
    with pytest.raises(RevokedError):
        await renew(Identity.load(folder))


@pytest.mark.redteam
async def test_wrong_role(coordinator: Coordinator, ids: Identities) -> None:
    """An operator's command with a client's folder is told before it dials; a client as server likewise."""
    error = await failure_of(coordinator.address, ids.client(), Role.OPERATOR)
    assert type(error) is PermissionDeniedError
    assert "client/cleveland" in str(error)
    assert "operator" in str(error)
    answer = await ask(
        coordinator,
        ids,
        pb.DiagnoseRequest(certificate_pem=(ids.coordinator / "cert.pem").read_text(), role="client"),
    )
    assert answer.verdict == pb.VERDICT_WRONG_ROLE


@pytest.mark.redteam
async def test_a_client_cannot_pose_as_the_coordinator(ids: Identities) -> None:
    """A server that shows a client's certificate is found out, by grpc and by the diagnosis."""
    folder = ids.client("mallory")
    identity = Identity.load(folder)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((WhoAmI(),))
    credentials = grpc.ssl_server_credentials([(identity.key_pem, identity.certificate_pem + identity.ca_pem)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        victim = ids.client("victim")
        posing = Coordinator(ids, port, port, RevocationWatch(ids.pki.registry))
        with pytest.raises(UnavailableError):
            await posing.call(victim)
        error = await failure_of(f"localhost:{port}", victim)
        assert type(error) is CertificateError
        assert "wrong host name" in str(error) or "wrong role" in str(error)
    finally:
        await server.stop(None)


async def test_plain_text_peers(ids: Identities) -> None:
    """A plain gRPC server, a web server and a silent one are each told within seconds."""
    folder = ids.client()
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    error = await failure_of(f"localhost:{port}", folder)
    await server.stop(None)
    assert type(error) is WireError
    assert "plain text" in str(error)
    for reply, words in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "plain text"), (b"", "does not speak TLS")):
        with talking(reply) as port:
            assert words in str(await failure_of(f"localhost:{port}", folder))


@contextlib.contextmanager
def talking(reply: bytes) -> Iterator[int]:
    """A server that answers any first bytes with `reply`, or stays silent."""
    listener = socket.create_server(("127.0.0.1", 0))
    held = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                held.append(connection)
                if reply:
                    connection.recv(1000)
                    connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in held:
            connection.close()


async def test_enrolment_port_instead_of_the_coordinators(coordinator: Coordinator, ids: Identities) -> None:
    """Dialling the enrolment port by mistake is told as such."""
    error = await failure_of(f"localhost:{coordinator.enrolment_port}", ids.client())
    assert "is the enrolment port" in str(error)
    assert coordinator.address in str(error)


async def test_nobody_there(ids: Identities) -> None:
    """A closed port, a name without address and a malformed address."""
    folder = ids.client()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = await failure_of(f"localhost:{port}", folder)
    assert type(error) is UnavailableError
    assert "nothing listens" in str(error)
    error = await failure_of("no-such-host.invalid:8470", folder)
    assert type(error) is UnavailableError
    assert "cannot be resolved" in str(error)
