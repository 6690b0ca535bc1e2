"""Revocations reach a running coordinator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from kernfed.pki.authority import make_csr, new_key, serial_of
from kernfed.pki.folder import parse_certificate, parse_key
from kernfed.pki.identity import Identity
from kernfed.pki.names import Role, parse_principal
from kernfed.pki.records import Revocation
from kernfed.pki.registry_reader import RegistryReader
from kernfed.pki.revocation_list import RENEWED_EVERY
from kernfed.pki.successions import OVERLAP
from kernfed_server.trust.revocations import RevocationWatch
from kernfed_testing.identities import make_identities
from kernfed_testing.limits import LIMIT_S


@contextlib.asynccontextmanager
async def running(watch: RevocationWatch) -> AsyncIterator[None]:
    task = asyncio.ensure_future(watch.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_new_revocations_are_told_once(tmp_path: Path) -> None:
    """Old revocations are known from the start, a new one is told once."""
    ids = make_identities(tmp_path)
    old, new = ids.load_client("old"), ids.load_client("new")
    ids.pki.revoke("old")
    told: asyncio.Queue[Revocation] = asyncio.Queue()
    watch = RevocationWatch(ids.pki.registry, lambda revocation, _: told.put_nowait(revocation), interval_s=0.01)
    assert watch.is_revoked(old.serial)
    async with running(watch):
        assert not watch.is_revoked(new.serial)
        await asyncio.to_thread(ids.pki.revoke, "client/new", why="left")
        revocation = await asyncio.wait_for(told.get(), LIMIT_S)
        assert (revocation.name, revocation.why, revocation.serial) == ("new", "left", new.serial)
        assert watch.is_revoked(new.serial)
        await asyncio.to_thread(ids.pki.revoke, "operator/ann")
        assert (await asyncio.wait_for(told.get(), LIMIT_S)).name == "ann"
    assert told.empty()


async def test_revoked_operators_are_told(tmp_path: Path) -> None:
    """At the start and with each operator that is revoked; a client that is revoked is none."""
    ids = make_identities(tmp_path)
    ann, bob = Identity.load(ids.operator).serial, Identity.load(ids.make(Role.OPERATOR, "bob")).serial
    ids.make(Role.CLIENT, "a")
    ids.pki.revoke("operator/bob")
    told: asyncio.Queue[tuple[set[str], int]] = asyncio.Queue()
    watch = RevocationWatch(
        ids.pki.registry,
        on_operators=lambda serials, number: told.put_nowait((set(serials), number)),
        interval_s=0.01,
    )
    async with running(watch), asyncio.timeout(LIMIT_S):
        assert await told.get() == ({bob}, 1)
        await asyncio.to_thread(ids.pki.revoke, "client/a")
        while not watch.is_revoked(ids.pki.registry.certificates()[0].serial):  # the client's come first
            await asyncio.sleep(0.01)
        await asyncio.to_thread(ids.pki.revoke, "operator/ann")
        assert await told.get() == ({ann, bob}, 3)


async def test_the_list_is_told_anew_each_hour(tmp_path: Path) -> None:
    """A key with a revoked certificate leaves it when its other one expires; a clock that goes back hides no hour."""
    ids = make_identities(tmp_path)
    ann = Identity.load(ids.operator)
    registry, now = ids.pki.registry, ids.pki.now()
    key = parse_key(ann.key_pem, ids.operator)
    second = ids.pki.authority.issue(key.public_key(), ann.principal, now=now)
    registry.record(second, "renewal", now)
    registry.revoke(ann.serial, now=now, why="lost")
    told: asyncio.Queue[set[str]] = asyncio.Queue()
    watch = RevocationWatch(
        registry, on_operators=lambda serials, _: told.put_nowait(set(serials)), interval_s=0.01, now=lambda: now
    )
    async with running(watch), asyncio.timeout(LIMIT_S):
        assert await told.get() == {ann.serial}
        now += RENEWED_EVERY
        assert await told.get() == {ann.serial}
        now = second.not_valid_after_utc
        assert await told.get() == {ann.serial, serial_of(second)}
        await asyncio.sleep(0.05)
        assert told.empty()
        now -= timedelta(seconds=10)
        assert await told.get() == {ann.serial}


async def test_unreadable_registry_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that goes away for a while is one error in the log; what happens meanwhile is not lost."""
    loop, looks, look = asyncio.get_running_loop(), asyncio.Queue[None](), RegistryReader.revocations

    def counted(reader: RegistryReader, after: int) -> list[Revocation]:
        loop.call_soon_threadsafe(looks.put_nowait, None)
        return look(reader, after)

    monkeypatch.setattr(RegistryReader, "revocations", counted)
    ids = make_identities(tmp_path)
    client = ids.load_client("a")
    told: asyncio.Queue[Revocation] = asyncio.Queue()
    path = ids.pki.registry.path
    hidden = path.with_name("hidden")
    with structlog.testing.capture_logs() as logs:
        async with running(
            RevocationWatch(ids.pki.registry, lambda revocation, _: told.put_nowait(revocation), interval_s=0.01)
        ):
            path.rename(hidden)
            while not looks.empty():
                looks.get_nowait()
            async with asyncio.timeout(LIMIT_S):
                for _ in range(8):
                    await looks.get()
            assert logs
            hidden.rename(path)
            ids.pki.registry.revoke(parse_principal("hearts", "client/a"), now=ids.pki.now())
            assert (await asyncio.wait_for(told.get(), LIMIT_S)).serial == client.serial
    assert [e["log_level"] for e in logs] == ["error", "info", "warning"]


async def test_the_use_of_a_renewed_certificate_ends_the_one_before(tmp_path: Path) -> None:
    """A caller with the new certificate begins the overlap, even before the first look; then the old one is out."""
    ids = make_identities(tmp_path)
    old = ids.load_client("a")
    key = new_key()
    fresh = parse_certificate(ids.pki.renew(old.certificate, make_csr(key, "a")), "answer")
    now = ids.pki.now()
    told: asyncio.Queue[Revocation] = asyncio.Queue()
    registry = ids.pki.registry
    watch = RevocationWatch(registry, lambda found, _: told.put_nowait(found), interval_s=0.01, now=lambda: now)
    assert not watch.is_revoked(serial_of(fresh))
    with contextlib.closing(RegistryReader(registry.path)) as reader:
        async with running(watch), asyncio.timeout(LIMIT_S):
            while reader.unused(now)[0]:
                await asyncio.sleep(0.01)
            assert told.empty()
            now += OVERLAP
            assert (await told.get()).serial == old.serial
    assert watch.is_revoked(old.serial)
    assert not watch.is_revoked(serial_of(fresh))
