"""When certificates are renewed, with a made-up clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
import structlog

from kernfed.errors import UnavailableError
from kernfed.pki.identity import Identity
from kernfed.pki.renewal import keep_renewed, retry_after, seconds_until_due
from kernfed_testing.identities import make_identities


class Stop(BaseException):
    """Ends the coroutine under test."""


class Clock:
    """A clock that sleeping advances; it stops the test when its end is reached."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self.time, self.end = begin, end
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += timedelta(seconds=seconds)
        if self.time >= self.end:
            raise Stop


@pytest.mark.slow
async def test_renews_at_two_thirds_of_the_life(tmp_path: Path) -> None:
    """Nothing happens in the first 60 of 90 days; then one renewal, and the new certificate counts."""
    ids = make_identities(tmp_path)
    identity = Identity.load(ids.operator)
    begin = identity.not_after - timedelta(days=90)
    clock = Clock(begin, begin + timedelta(days=61))
    renewed_at: list[datetime] = []
    told: list[Identity] = []

    async def renew(old: Identity) -> None:
        renewed_at.append(clock.time)
        pki = type(ids.pki)(ids.pki.path, ids.pki.authority, ids.pki.registry, clock.now)
        pki.renew_folder(ids.operator)

    with pytest.raises(Stop):
        await keep_renewed(ids.operator, renew, now=clock.now, sleep=clock.sleep, on_renewed=told.append)
    (at,) = renewed_at
    assert timedelta(0) <= at - (begin + timedelta(days=60)) < timedelta(hours=1)
    assert told[0].serial != identity.serial
    assert max(clock.sleeps) <= 3600


async def test_keeps_trying_and_warns(tmp_path: Path) -> None:
    """A coordinator that stays away gives warnings, then errors, ever closer tries, and no end of the coroutine."""
    ids = make_identities(tmp_path)
    identity = Identity.load(ids.client(days=1))
    begin = identity.not_after - timedelta(days=1)
    clock = Clock(begin + timedelta(hours=15), identity.not_after)

    async def renew(old: Identity) -> None:
        raise UnavailableError("nothing listens")

    with structlog.testing.capture_logs() as logs, pytest.raises(Stop):
        await keep_renewed(identity.folder, renew, now=clock.now, sleep=clock.sleep)
    expiry = [e["log_level"] for e in logs if e["event"] == "certificate expires soon"]
    assert "warning" in expiry
    assert "error" in expiry
    assert expiry == sorted(expiry, key=["warning", "error"].index)
    assert sum(e["event"].startswith("certificate not renewed") for e in logs) > 50
    assert min(clock.sleeps) >= 1


async def test_a_ca_at_its_own_end_is_not_asked_ever_faster(tmp_path: Path) -> None:
    """A renewal that brings no later end is an error that says so, once an hour at most."""
    ids = make_identities(tmp_path)
    identity = Identity.load(ids.client(days=1))
    clock = Clock(identity.not_after - timedelta(hours=7.5), identity.not_after)
    asked: list[datetime] = []

    async def renew(old: Identity) -> None:
        asked.append(clock.time)

    with structlog.testing.capture_logs() as logs, pytest.raises(Stop):
        await keep_renewed(identity.folder, renew, now=clock.now, sleep=clock.sleep)
    assert 7 <= len(asked) <= 8
    assert sum("for the federation's CA ends then" in e["event"] for e in logs) == len(asked)


def test_due_and_retry(tmp_path: Path) -> None:
    """The due time is 2/3 of the life; tries come between a second and an hour apart."""
    identity = Identity.load(make_identities(tmp_path).client(days=3))
    begin = identity.not_after - timedelta(days=3)
    assert seconds_until_due(identity, begin) == pytest.approx(2 * 86400)
    assert retry_after(identity, begin) == 3600
    assert retry_after(identity, identity.not_after - timedelta(seconds=5)) == 1
    assert retry_after(identity, identity.not_after + timedelta(days=1)) == 3600


async def test_unreadable_identity_is_not_the_end(tmp_path: Path) -> None:
    """A folder that cannot be read is logged, and renewal goes on when it is whole again."""
    ids = make_identities(tmp_path)
    identity = Identity.load(ids.operator)
    cert = ids.operator / "cert.pem"
    cert.rename(tmp_path / "cert.pem")
    clock = Clock(identity.not_after - timedelta(days=10), identity.not_after)

    async def sleep(seconds: float) -> None:
        if not cert.exists():
            (tmp_path / "cert.pem").rename(cert)
        await clock.sleep(seconds)

    async def renew(old: Identity) -> None:
        raise Stop

    with structlog.testing.capture_logs() as logs, pytest.raises(Stop):
        await keep_renewed(ids.operator, renew, now=clock.now, sleep=sleep)
    assert [e["log_level"] for e in logs] == ["error"]
    assert clock.sleeps == [60]
