"""Enrolment, renewal and revocation over real sockets: a token works once, and certificates follow each other."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import structlog

from kernfed.errors import (
    AuthError,
    BusyError,
    CertificateError,
    IdentityError,
    TokenError,
)
from kernfed.federation.events import JobState
from kernfed.pki.authority import make_csr, new_key, serial_of
from kernfed.pki.identity import (
    Identity,
    Role,
    enrolment_channel_credentials,
)
from kernfed.pki.renewal import keep_renewed, renew
from kernfed.pki.tls_chain import fetch_chain
from kernfed.pki.tokens import Token, decode_token, encode_token
from kernfed.status import error_from_rpc
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wire.channel import ENROLMENT_OPTIONS
from kernfed_client.enrol import enrol
from kernfed_testing.federation import Federation
from kernfed_testing.identities import Identities, make_identities
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.bare_coordinator import Coordinator, serving


@pytest.fixture
def ids(tmp_path: Path) -> Identities:
    return make_identities(tmp_path)


@pytest.fixture
async def coordinator(ids: Identities) -> AsyncIterator[Coordinator]:
    async with serving(ids) as running:
        yield running


async def test_enrolment(coordinator: Coordinator, ids: Identities, tmp_path: Path) -> None:
    """A token gives a working identity whose key is 0600 and was made at the site."""
    site = tmp_path / "site"
    identity = await enrol(ids.pki.make_token("hungary"), site)
    assert (identity.name, identity.role, identity.federation) == ("hungary", Role.CLIENT, "hearts")
    assert identity.coordinator == coordinator.address
    assert (site / "key.pem").stat().st_mode & 0o777 == 0o600
    assert site.stat().st_mode & 0o777 == 0o700
    key = (site / "key.pem").read_bytes().splitlines()[1]
    assert not any(key in p.read_bytes() for p in ids.pki.path.rglob("*") if p.is_file())
    assert await coordinator.call(site) == "client/hungary"
    with pytest.raises(IdentityError, match="enrolled already"):
        await enrol(ids.pki.make_token("hungary"), site)


@pytest.mark.redteam
async def test_bad_tokens(coordinator: Coordinator, ids: Identities, tmp_path: Path) -> None:
    """Used, expired, forged, re-aimed and damaged tokens are each refused by name, and leave no certificate."""
    used = ids.pki.make_token("a")
    await enrol(used, tmp_path / "a")
    token = decode_token(ids.pki.make_token("b"))
    expired = ids.pki.make_token("c", lifetime=timedelta(seconds=-1))
    for text, error, words in [
        (used, TokenError, "was used on"),
        (expired, TokenError, "expired on"),
        (changed(token, secret="forged"), TokenError, "never issued"),
        (changed(token, client="other"), TokenError, "made for 'b'"),
        (used[:-20], TokenError, "damaged"),
        (changed(token, ca_sha256="00" * 32), CertificateError, "not the coordinator that this token is for"),
    ]:
        with pytest.raises(error, match=words):
            await enrol(text, tmp_path / "site")
        assert not (tmp_path / "site" / "cert.pem").exists()
    names = {c.name for c in ids.pki.registry.certificates() if c.role is Role.CLIENT}
    assert names == {"a"}


def changed(token: Token, **changes: Any) -> str:
    return encode_token(dataclasses.replace(token, **changes))


async def test_lost_answer(coordinator: Coordinator, ids: Identities, tmp_path: Path) -> None:
    """If the answer to an enrolment is lost, the same token works again with the key that waits there."""
    text = ids.pki.make_token("a")
    first = await enrol(text, tmp_path / "site")
    (tmp_path / "site" / "cert.pem").unlink()
    again = await enrol(text, tmp_path / "site")
    assert (again.serial, again.key_pem) == (first.serial, first.key_pem)


@pytest.mark.redteam
async def test_guessing_is_slowed_down_and_locks_nobody_out(
    coordinator: Coordinator, ids: Identities, tmp_path: Path
) -> None:
    """After a few wrong tokens an address must wait with more of them; a right one behind the same address passes."""
    text = ids.pki.make_token("a")
    credentials = enrolment_channel_credentials(ids.pki.authority.certificate_pem)
    refused = []
    async with grpc.aio.secure_channel(f"localhost:{coordinator.enrolment_port}", credentials) as channel:
        for number in range(40):
            guess = pb.EnrolRequest(client="a", secret=f"guess {number}", csr_pem=make_csr(new_key(), "a").decode())
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rpc.EnrolmentServiceStub(channel).Enrol(guess, timeout=LIMIT_S)
            refused.append(type(error_from_rpc(caught.value)))
    assert refused == [TokenError] * 5 + [BusyError] * 35
    with pytest.raises(BusyError, match="wait"):
        await enrol(changed(decode_token(text), secret="guess"), tmp_path / "wrong")
    assert (await enrol(text, tmp_path / "site")).name == "a"


@pytest.mark.redteam
async def test_strangers_who_finish_the_handshake_are_shown_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may connect to the port of enrolment; who does nothing there is shut out, and sessions go on."""
    shorter = {"grpc.max_connection_idle_ms": 300, "grpc.max_connection_age_ms": 1000}
    options = tuple({**dict(ENROLMENT_OPTIONS), **shorter}.items())
    monkeypatch.setattr("kernfed_server.app.ENROLMENT_OPTIONS", options)
    async with Federation(tmp_path, ["a"]) as fed:
        trust = ssl.create_default_context(cafile=str(fed.identities.operator / "ca.pem"))
        trust.set_alpn_protocols(["h2"])
        strangers = [await asyncio.open_connection("localhost", fed.ports.enrolment, ssl=trust) for _ in range(50)]
        job = await fed.submit(fed.job("probe", rounds=3, cohort_min_clients=1))
        async with asyncio.timeout(LIMIT_S):
            for reader, _ in strangers:
                while await reader.read(1 << 16):
                    pass
        assert (await fed.end(job.job_id)).info.state is JobState.SUCCEEDED
        for _, writer in strangers:
            writer.close()


@pytest.mark.redteam
async def test_wrong_coordinator_never_sees_the_secret(ids: Identities, tmp_path: Path) -> None:
    """A server with another CA is turned away before the token's secret is sent."""
    other = make_identities(tmp_path / "other")
    token = decode_token(ids.pki.make_token("a"))
    async with serving(other) as impostor:
        text = changed(token, enrolment=f"localhost:{impostor.enrolment_port}")
        with structlog.testing.capture_logs() as logs, pytest.raises(CertificateError, match="secret was not sent"):
            await enrol(text, tmp_path / "site")
    assert logs == []


@pytest.mark.redteam
async def test_renewal_needs_the_certificate(coordinator: Coordinator, ids: Identities) -> None:
    """The enrolment port renews nobody: it does not know who calls."""
    credentials = enrolment_channel_credentials(ids.pki.authority.certificate_pem)
    request = pb.RenewRequest(csr_pem=make_csr(new_key(), "x").decode())
    async with grpc.aio.secure_channel(f"localhost:{coordinator.enrolment_port}", credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.EnrolmentServiceStub(channel).Renew(request, timeout=LIMIT_S)
    assert type(error_from_rpc(caught.value)) is AuthError


async def test_client_renewal(coordinator: Coordinator, ids: Identities) -> None:
    """A client's renewed certificate has the same key, name and length of life, and works."""
    folder = ids.client(days=10)
    old = Identity.load(folder)
    new = await renew(old)
    assert new.serial != old.serial
    assert new.key_pem == old.key_pem  # other sites may go by it
    assert new.principal == old.principal
    assert abs((new.not_after - old.not_after).total_seconds()) < 60
    assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
    assert await coordinator.call(folder) == "client/cleveland"


async def test_an_operator_keeps_its_key(coordinator: Coordinator, ids: Identities) -> None:
    """An operator's renewed certificate is for the same key, here and over the network: policies may name it."""
    old = Identity.load(ids.operator)
    ids.pki.renew_folder(ids.operator)
    beside = Identity.load(ids.operator)
    over_network = await renew(beside, address=coordinator.address)
    assert len({old.serial, beside.serial, over_network.serial}) == 3
    assert old.key_pem == beside.key_pem == over_network.key_pem
    assert await coordinator.call(ids.operator) == "operator/ann"


async def test_daemon_renews_in_time(coordinator: Coordinator, ids: Identities) -> None:
    """The daemon's coroutine renews a certificate that is near its end, by the real coordinator."""
    folder = ids.client(days=1)
    old = Identity.load(folder)
    told: asyncio.Queue[Any] = asyncio.Queue()
    late = old.not_after - timedelta(hours=7)
    task = asyncio.ensure_future(keep_renewed(folder, now=lambda: late, on_renewed=told.put_nowait))
    try:
        fresh = await asyncio.wait_for(told.get(), 10)
        assert fresh.serial != old.serial
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_coordinator_takes_up_a_renewed_certificate(coordinator: Coordinator, ids: Identities) -> None:
    """New connections see the certificate on disk without a restart; a broken one on disk changes nothing."""
    folder = ids.client()

    async def shown(port: int) -> str:
        chain = await asyncio.to_thread(fetch_chain, "localhost", port)
        return serial_of(chain[0])

    ports = (coordinator.port, coordinator.enrolment_port)
    before = Identity.load(ids.coordinator).serial
    assert [await shown(p) for p in ports] == [before, before]
    ids.pki.renew_folder(ids.coordinator)
    after = Identity.load(ids.coordinator).serial
    assert after != before
    assert [await shown(p) for p in ports] == [after, after]
    assert await coordinator.call(folder) == "client/cleveland"
    (ids.coordinator / "cert.pem").write_text("rubbish")
    assert await shown(coordinator.port) == after
    assert await coordinator.call(folder) == "client/cleveland"
