"""A client's memory of revoked operators."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from kernfed.pki.authority import Authority
from kernfed.pki.revocation_list import MAX_LIST_BYTES, VALIDITY, sign_list
from kernfed_client.daemon.operators.revoked import RevokedOperators

NOW = datetime.now(UTC).replace(microsecond=0)
CA = Authority.create("hearts", NOW)


DAY = timedelta(days=1)


def signed(number: int, *serials: str, ca: Authority = CA, at: datetime = NOW) -> bytes:
    return sign_list(ca, dict.fromkeys(serials, NOW), number, at)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def test_a_revoked_operator_stays_revoked(tmp_path: Path) -> None:
    """Neither a restart nor an older list of a restored coordinator takes it back; what that one adds counts too."""
    path = tmp_path / "revoked.json"
    client = RevokedOperators(CA.certificate, path)
    assert client.since("a1") is None
    client.told(signed(5, "a1", "b2"))
    assert client.since("a1") == NOW
    again = RevokedOperators(CA.certificate, path)
    with structlog.testing.capture_logs() as logs:
        again.told(signed(3, "c3"))
    assert "older than one that came before" in logs[0]["event"]
    assert [again.since(s) for s in ("a1", "b2", "c3")] == [NOW] * 3
    assert path.stat().st_mode & 0o777 == 0o600
    assert RevokedOperators(CA.certificate, path).since("c3") == NOW


def test_a_list_proves_for_a_week_that_nobody_else_was_revoked(tmp_path: Path) -> None:
    """Then its lack is said, once in the log; a list told again, or an older one, is no newer; a restart keeps it."""
    clock, path = Clock(), tmp_path / "revoked.json"
    client = RevokedOperators(CA.certificate, path, clock)
    assert client.stale().startswith("no list of revoked operators has come that counts: the coordinator may withhold")
    client.told(signed(5, "a1"))
    assert (client.stale(), client.judged_by) == ("", NOW)
    clock.now += VALIDITY
    again = RevokedOperators(CA.certificate, path, clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            again.told(signed(5, "a1"))
            again.told(signed(9, at=NOW - DAY))
            assert "was signed on" in again.stale()
        again.told(signed(5, "a1", at=clock.now))
        assert again.stale() == ""
    assert [entry["event"] for entry in logs] == [
        "it is not known who was revoked lately",
        "the coordinator's list of revoked operators is older than one that came before; both count. Was its PKI "
        "restored from a backup? Then revoke again whom it lost",
        "there is a fresh list of revoked operators again",
    ]
    assert RevokedOperators(CA.certificate, path, clock).judged_by == clock.now


def test_a_list_of_a_day_to_come_proves_nothing_of_others() -> None:
    """Whom it names is refused all the same; no list holds for longer than a week, whatever it says of itself."""
    clock = Clock()
    client = RevokedOperators(CA.certificate, now=clock)
    with structlog.testing.capture_logs() as logs:
        client.told(signed(5, "a1", at=NOW + 365 * DAY))
    assert (client.since("a1"), client.judged_by) == (NOW, None)
    assert "signed at a time to come" in logs[0]["event"]
    client.told(signed(5, at=NOW + DAY / 2))  # a clock that is wrong by hours
    assert client.stale() == ""


def changed(der: bytes) -> bytes:
    return der[:-1] + bytes([der[-1] ^ 1])


ATTACKS: dict[str, Callable[[], bytes]] = {
    "forged": lambda: signed(7, ca=Authority.create("hearts", NOW)),
    "for another federation": lambda: signed(7, ca=Authority.create("lungs", NOW)),
    "cut": lambda: signed(7)[:-1],
    "longer": lambda: signed(7) + b"x",
    "changed": lambda: changed(signed(7)),
    "nothing": lambda: b"",
    "huge": lambda: signed(7) + bytes(MAX_LIST_BYTES),
    "zeros": lambda: bytes(MAX_LIST_BYTES),
    "deep": lambda: b"\x30\x80" * 10_000,
    "a certificate": lambda: CA.certificate_pem,
}


@pytest.mark.redteam
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_thousand_lists_that_do_not_hold(tmp_path: Path, attack: str) -> None:
    """They cost one line of the log, no file and no second each; who was revoked stays so, and freshness as it was."""
    path = tmp_path / "revoked.json"
    client = RevokedOperators(CA.certificate, path, Clock())
    client.told(signed(5, "a1"))
    kept, der = path.read_bytes(), ATTACKS[attack]()
    begun = time.process_time()
    with structlog.testing.capture_logs() as logs:
        for _ in range(1000 if len(der) < 5000 else 20):
            client.told(der)
    assert time.process_time() - begun < 5
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert (path.read_bytes(), client.since("a1"), client.judged_by) == (kept, NOW, NOW)


@pytest.mark.parametrize("text", ["[]", "{", '{"number": 1, "revoked": {"a": 1e300}}', '{"number": 1, "revoked": [1]}'])
def test_a_kept_file_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    """It is logged, and nothing of it counts; one of a release that kept no time does, and holds no fresh list."""
    path = tmp_path / "revoked.json"
    path.write_text(text)
    with structlog.testing.capture_logs() as logs:
        assert RevokedOperators(CA.certificate, path).since("a") is None
    assert [entry["log_level"] for entry in logs] == ["error"]
    path.write_text('{"number": 3, "revoked": {"a": 1000.0}}')
    client = RevokedOperators(CA.certificate, path)
    assert (client.since("a"), client.judged_by) == (datetime.fromtimestamp(1000, UTC), None)
