"""The PKI folder as a whole: init, local renewal, offline signing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernfed.errors import CertificateError, ConfigError, IdentityError, RevokedError
from kernfed.pki.enrolled import install_bundle, write_request
from kernfed.pki.federation import FederationPki
from kernfed.pki.folder import read_pair
from kernfed.pki.identity import Identity, Role
from kernfed.pki.names import parse_principal
from kernfed.pki.tls_chain import server_names
from kernfed.pki.tokens import decode_token
from kernfed_testing.identities import Identities, make_identities


@pytest.fixture
def ids(tmp_path: Path) -> Identities:
    return make_identities(tmp_path)


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_init_makes_private_folders(ids: Identities) -> None:
    """Keys are 0600 and folders 0700; both identities load."""
    keys = [p for p in ids.pki.path.rglob("*") if p.name in ("ca.key", "key.pem", "registry.sqlite")]
    assert len(keys) == 4
    assert {p.stat().st_mode & 0o777 for p in keys} == {0o600}
    assert {p.stat().st_mode & 0o777 for p in (ids.pki.path, ids.coordinator, ids.operator)} == {0o700}
    assert Identity.load(ids.coordinator).role is Role.COORDINATOR
    operator = Identity.load(ids.operator)
    assert (operator.role, operator.name, operator.coordinator) == (Role.OPERATOR, "ann", "localhost:8470")


def test_init_again_changes_nothing(ids: Identities) -> None:
    """A second init refuses, says what to do, and leaves every byte."""
    before = snapshot(ids.pki.path)
    with pytest.raises(ConfigError, match=r"nothing was changed.*--dir.*move the folder away"):
        FederationPki.init(ids.pki.path, "hearts")
    assert snapshot(ids.pki.path) == before


def test_failed_init_leaves_nothing(tmp_path: Path) -> None:
    """A host name that no certificate can hold is refused before anything is made."""
    with pytest.raises(ConfigError, match="neither a host name"):
        FederationPki.init(tmp_path / "pki", "hearts", hosts=["höst.example"], operator="ann")
    assert list(tmp_path.iterdir()) == []


def test_renewing_a_folder(ids: Identities) -> None:
    """A folder is renewed in place with a new key, new hosts reach tokens, a revoked one stays out."""
    before = read_pair(ids.coordinator)
    ids.pki.renew_folder(ids.coordinator, lifetime=timedelta(days=10), hosts=["fed.example.org", "10.0.0.1"])
    after = Identity.load(ids.coordinator)
    assert after.key_pem != before.key_pem
    assert {"fed.example.org", "10.0.0.1", "localhost"} <= set(server_names(after.certificate))  # all dial on as before
    assert timedelta(days=9) < after.not_after - datetime.now(UTC) < timedelta(days=10)
    assert decode_token(ids.pki.make_token("cleveland")).enrolment == "fed.example.org:8471"
    ids.pki.renew_folder(ids.coordinator, hosts=["localhost"])  # as the remedy of a wrong host name says
    assert decode_token(ids.pki.make_token("cleveland")).enrolment == "fed.example.org:8471"
    ids.pki.renew_folder(ids.coordinator, hosts=["new.example.org"], only=True)
    assert server_names(Identity.load(ids.coordinator).certificate) == ["new.example.org"]
    ids.pki.revoke("operator/ann")
    with pytest.raises(RevokedError):
        ids.pki.renew_folder(ids.operator)


def test_lifetime_does_not_creep(ids: Identities) -> None:
    """Renewing again and again keeps the length of life, backdating or not."""
    first = Identity.load(ids.operator)
    for _ in range(3):
        ids.pki.renew_folder(ids.operator)
    last = Identity.load(ids.operator)
    assert last.not_after - last.not_before == first.not_after - first.not_before


def test_offline_signing(ids: Identities, tmp_path: Path) -> None:
    """A request signed offline and installed gives the same identity as a token, and the request's name is ignored."""
    site = tmp_path / "site"
    request = write_request(site, "coordinator")
    bundle = tmp_path / "cleveland.pem"
    bundle.write_bytes(ids.pki.sign(request.read_bytes(), parse_principal("hearts", "client/cleveland")))
    install_bundle(site, bundle)
    identity = Identity.load(site)
    assert (str(identity.principal), identity.coordinator) == ("client/cleveland", "localhost:8470")
    assert identity.enrolment == "localhost:8471"
    assert (site / "key.pem").stat().st_mode & 0o777 == 0o600
    assert not request.exists()
    with pytest.raises(IdentityError, match="enrolled already"):
        write_request(site, "cleveland")


def test_installing_the_wrong_certificate(ids: Identities, tmp_path: Path) -> None:
    """A certificate for another key is refused, and the folder stays as it was."""
    write_request(tmp_path / "a", "a")
    request = write_request(tmp_path / "b", "b")
    bundle = tmp_path / "b.pem"
    bundle.write_bytes(ids.pki.sign(request.read_bytes(), parse_principal("hearts", "client/b")))
    before = snapshot(tmp_path / "a")
    with pytest.raises(CertificateError, match="another key"):
        install_bundle(tmp_path / "a", bundle)
    assert snapshot(tmp_path / "a") == before
    with pytest.raises(IdentityError, match=r"no-such.*is missing|key\.pem is missing"):
        install_bundle(tmp_path / "c", bundle)
    with pytest.raises(IdentityError, match=r"no\.pem is missing: give the file that `kernfed pki sign` wrote"):
        install_bundle(tmp_path / "a", tmp_path / "no.pem")


def test_no_coordinator_by_signing(ids: Identities, tmp_path: Path) -> None:
    """Nobody becomes the coordinator through a request."""
    request = write_request(tmp_path / "a", "a")
    with pytest.raises(ConfigError):
        ids.pki.sign(request.read_bytes(), parse_principal("hearts", "coordinator"))


def test_open_ca_key_is_refused(ids: Identities) -> None:
    """A CA key that others can read stops everything, with the remedy."""
    (ids.pki.path / "ca.key").chmod(0o640)
    with pytest.raises(IdentityError, match="chmod 600"):
        FederationPki.open(ids.pki.path)
