"""Loading identity folders: what is refused, what is healed, when we warn."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from kernfed.errors import CertificateError, IdentityError, RevokedError
from kernfed.pki.authority import certificate_pem, key_pem, new_key, utc_now
from kernfed.pki.folder import write_file
from kernfed.pki.identity import Identity, admission, server_credentials
from kernfed.pki.names import parse_principal
from kernfed_testing.identities import Identities, make_identities


@pytest.fixture
def ids(tmp_path: Path) -> Identities:
    return make_identities(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_open_key_is_refused(ids: Identities, mode: int) -> None:
    """A key that anybody else can read or write is not used; the message holds the command that helps."""
    folder = ids.client()
    (folder / "key.pem").chmod(mode)
    with pytest.raises(IdentityError, match=f"chmod 600 {folder}/key.pem"):
        Identity.load(folder)


@pytest.mark.parametrize("name", ["cert.pem", "key.pem", "ca.pem", "identity.json"])
def test_missing_and_damaged_files(ids: Identities, name: str) -> None:
    """Each file, missing or full of something else, is named."""
    folder = ids.client()
    path = folder / name
    path.write_text("rubbish")
    with pytest.raises(IdentityError, match=name.replace(".", r"\.")):
        Identity.load(folder)
    path.unlink()
    with pytest.raises(IdentityError, match=f"{name} is missing"):
        Identity.load(folder)


def test_files_that_do_not_fit(ids: Identities, tmp_path: Path) -> None:
    """Another's key, another federation's CA and another's description are each told apart."""
    a, b = ids.client("a"), ids.client("b")
    key = (a / "key.pem").read_bytes()
    (a / "key.pem").write_bytes((b / "key.pem").read_bytes())
    with pytest.raises(IdentityError, match="does not belong to"):
        Identity.load(a)
    (a / "key.pem").write_bytes(key)
    (a / "identity.json").write_bytes((b / "identity.json").read_bytes())
    with pytest.raises(IdentityError, match=r"says client/b .* client/a"):
        Identity.load(a)
    other = make_identities(tmp_path / "other")
    (b / "ca.pem").write_bytes(other.pki.authority.certificate_pem)
    with pytest.raises(CertificateError, match="different federations"):
        Identity.load(b)


def test_dates(ids: Identities) -> None:
    """Expired and not yet valid certificates are refused with both dates."""
    with pytest.raises(CertificateError, match=r"expired on .* \(it is now .*set this machine's clock"):
        Identity.load(ids.client("old", days=-1))
    with pytest.raises(CertificateError, match=r"not valid before .*clock"):
        Identity.load(ids.client("new", not_before=utc_now() + timedelta(hours=1)))
    assert Identity.load(ids.root / "client-old", check_dates=False).name == "old"


def test_crash_between_two_renames_heals(ids: Identities) -> None:
    """New key in place, new certificate still waiting: the pair that fits is read."""
    folder = ids.client()
    key = new_key()
    principal = parse_principal("hearts", "client/cleveland")
    fresh = ids.pki.authority.issue(key.public_key(), principal, now=utc_now())
    write_file(folder / "cert.pem.next", certificate_pem(fresh))
    before = Identity.load(folder)
    assert before.serial != f"{fresh.serial_number:x}"
    write_file(folder / "key.pem", key_pem(key))
    assert Identity.load(folder).serial == f"{fresh.serial_number:x}"


def test_warnings_before_expiry(ids: Identities) -> None:
    """Silent in the first 70 % of a certificate's life, then warnings, errors in the last 10 %."""
    identity = Identity.load(ids.client(days=100))
    begin = identity.not_after - timedelta(days=100)
    levels = []
    for day in (0, 69, 71, 89, 91, 101):
        with structlog.testing.capture_logs() as logs:
            left = identity.warn_if_expiring(begin + timedelta(days=day))
        assert left == pytest.approx(max(0, 1 - day / 100), abs=1e-6)
        levels.append([entry["log_level"] for entry in logs])
    assert levels == [[], [], ["warning"], ["warning"], ["error"], ["error"]]


def test_server_needs_the_coordinators_identity(ids: Identities) -> None:
    """A coordinator started with an operator's folder is told so at once."""
    with pytest.raises(IdentityError, match="operator/ann"):
        server_credentials(ids.operator)


class _Call:
    """What an admission looks at of a call."""

    def __init__(self, folder: Path) -> None:
        self._pem = (folder / "cert.pem").read_bytes()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._pem]}


def test_a_connection_outlives_no_certificate(ids: Identities) -> None:
    """A call on a line that was dialled before the certificate's end is refused behind it; a revoked one says so."""
    folder = ids.client(days=2)
    call: Any = _Call(folder)
    end = Identity.load(folder).not_after
    clock = [end - timedelta(seconds=1)]
    admit = admission("hearts", lambda _: False, now=lambda: clock[0])
    admit(call)
    clock[0] = end
    with pytest.raises(CertificateError, match=r"client/cleveland expired on .*at the coordinator\).*enrol again"):
        admit(call)
    with pytest.raises(RevokedError):
        admission("hearts", lambda _: True, now=lambda: clock[0])(call)
