"""The list of operators whose signatures count no more, from the registry to a client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kernfed.errors import CertificateError, ConfigError
from kernfed.pki.authority import Authority, serial_of
from kernfed.pki.folder import parse_certificate, parse_key
from kernfed.pki.identity import Identity
from kernfed.pki.names import Role
from kernfed.pki.records import OperatorCertificate
from kernfed.pki.registry_reader import RegistryReader
from kernfed.pki.revocation_list import MAX_LIST_BYTES, not_believed, read_list, sign_list
from kernfed_testing.identities import make_identities

NOW = datetime.now(UTC).replace(microsecond=0)
CA = Authority.create("hearts", NOW)


def certificate(serial: str, key: str, *, live: bool = False, revoked: bool = False) -> OperatorCertificate:
    return OperatorCertificate(serial, key, live, NOW if revoked else None)


def test_what_was_signed_is_read() -> None:
    """Number, time and serials come back."""
    found = read_list(sign_list(CA, {"ab12": NOW, "ff": NOW - timedelta(days=1)}, 7, NOW), CA.certificate)
    assert (found.number, found.issued_at) == (7, NOW)
    assert found.revoked == {"ab12": NOW, "ff": NOW - timedelta(days=1)}


def test_what_another_signed_is_refused() -> None:
    """Another CA's list, one that was changed, and what is none."""
    signed = sign_list(CA, {"ab12": NOW}, 7, NOW)
    other = sign_list(Authority.create("hearts", NOW), {"ab12": NOW}, 7, NOW)
    place = signed.index(b"\xab\x12")
    changed = signed[:place] + b"\xab\x13" + signed[place + 2 :]
    cut = signed[:-9]
    for der, why in ((other, "not signed"), (changed, "not signed"), (b"", "cannot be read"), (cut, "cannot be read")):
        with pytest.raises(CertificateError, match=why):
            read_list(der, CA.certificate)
    with pytest.raises(CertificateError, match="at most"):
        read_list(bytes(MAX_LIST_BYTES + 1), CA.certificate)


def test_a_key_counts_no_more_once_none_of_its_certificates_is_live() -> None:
    """Then neither do those that were renewed or have expired; another key's do, and a renewal alone ends nothing."""
    renewed, expired = certificate("1", "k"), certificate("2", "k")
    last = certificate("3", "k", revoked=True)
    other = certificate("4", "l", live=True)
    assert set(not_believed([renewed, expired, last, other])) == {"1", "2", "3"}
    assert not_believed([renewed, certificate("5", "k", live=True)]) == {}
    by_serial = [certificate("6", "m", revoked=True), certificate("7", "m", live=True), certificate("8", "m")]
    assert set(not_believed(by_serial)) == {"6"}


def test_operators_of_a_registry(tmp_path: Path) -> None:
    """A renewed certificate is no revoked one; a revoked operator's are; the reason of renewals is nobody's to give."""
    ids = make_identities(tmp_path)
    ann = Identity.load(ids.operator)
    old = parse_certificate(ann.certificate_pem, ids.operator)
    key = parse_key(ann.key_pem, ids.operator)
    registry, now = ids.pki.registry, ids.pki.now()

    def again() -> x509.Certificate:
        return ids.pki.authority.issue(key.public_key(), ann.principal, now=now)

    registry.renew(serial_of(old), now=now, issue=again)
    new = next(c.serial for c in registry.certificates() if c.role is Role.OPERATOR and c.serial != serial_of(old))
    registry.end_renewed([new], now)
    registry.end_renewed([], now + timedelta(days=2))
    assert registry.is_revoked(serial_of(old))
    reader = RegistryReader(registry.path)
    assert not_believed(reader.operators(now)) == {}
    with pytest.raises(ConfigError, match="say it otherwise"):
        ids.pki.revoke("operator/ann", why="renewed")
    ids.pki.revoke("operator/ann", why="left")
    assert set(not_believed(reader.operators(now))) == {serial_of(old), new}
    reader.close()
