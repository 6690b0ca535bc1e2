"""A client's memory of revoked operators."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import structlog

from kernfed.pki.authority import Authority
from kernfed.pki.revocation_list import sign_list
from kernfed_client.daemon.revoked import RevokedOperators

NOW = datetime.now(UTC).replace(microsecond=0)
CA = Authority.create("hearts", NOW)


def signed(number: int, *serials: str, ca: Authority = CA) -> bytes:
    return sign_list(ca, dict.fromkeys(serials, NOW), number, NOW)


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


def test_what_the_ca_did_not_sign_changes_nothing(tmp_path: Path) -> None:
    """It is logged; so is a file that cannot be read."""
    path = tmp_path / "revoked.json"
    path.write_text("[]")
    with structlog.testing.capture_logs() as logs:
        client = RevokedOperators(CA.certificate, path)
        client.told(signed(5, "a1", ca=Authority.create("hearts", NOW)))
        client.told(b"x")
    assert [entry["log_level"] for entry in logs] == ["error"] * 3
    assert client.since("a1") is None
