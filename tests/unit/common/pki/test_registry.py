"""The registry under several processes, and the rules of tokens and revocations."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import Certificate

from kernfed.errors import BusyError, CertificateError, ConfigError, RevokedError, TokenError
from kernfed.pki.authority import Authority, certificate_pem, new_key, serial_of
from kernfed.pki.names import Principal, Role
from kernfed.pki.records import FederationInfo
from kernfed.pki.registry import REGISTRY, Registry
from kernfed.pki.registry_reader import RegistryReader
from kernfed.pki.successions import MAX_RENEWALS

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)
CLEVELAND = Principal("hearts", Role.CLIENT, "cleveland")
DAY = timedelta(days=1)
Issue = Callable[[], Certificate]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("hearts", NOW)


def registry_info() -> FederationInfo:
    return FederationInfo("hearts", "h:1", "h:2", ("h",))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry.create(tmp_path / REGISTRY, registry_info())


@pytest.fixture
def issue(authority: Authority) -> Issue:
    return lambda: authority.issue(new_key().public_key(), CLEVELAND, now=NOW)


def test_token_works_once(registry: Registry, issue: Issue) -> None:
    """A token is used up by the first key; the same key asking again gets the same certificate."""
    registry.add_token("s3cret", "cleveland", now=NOW, expires=NOW + DAY)
    first = registry.redeem("s3cret", "cleveland", "key-1", now=NOW, issue=issue)
    assert registry.redeem("s3cret", "cleveland", "key-1", now=NOW, issue=issue) == first
    with pytest.raises(TokenError, match="was used"):
        registry.redeem("s3cret", "cleveland", "key-2", now=NOW, issue=issue)
    assert len(registry.certificates()) == 1
    assert [t.state(NOW) for t in registry.tokens()] == ["used"]


def test_bad_tokens(registry: Registry, issue: Issue) -> None:
    """Unknown, expired, cancelled and another client's tokens each say which they are, and issue nothing."""
    registry.add_token("old", "cleveland", now=NOW - 2 * DAY, expires=NOW - DAY)
    registry.add_token("other", "hungary", now=NOW, expires=NOW + DAY)
    registry.add_token("gone", "switzerland", now=NOW, expires=NOW + DAY)
    registry.revoke(Principal("hearts", Role.CLIENT, "switzerland"), now=NOW)
    for secret, client, text in [
        ("forged", "cleveland", "never issued"),
        ("old", "cleveland", "expired on 2030-05-31"),
        ("other", "cleveland", "made for 'hungary'"),
        ("gone", "switzerland", "cancelled"),
    ]:
        with pytest.raises(TokenError, match=text):
            registry.redeem(secret, client, "key", now=NOW, issue=issue)
    assert registry.certificates() == []


def test_secrets_are_stored_hashed(registry: Registry) -> None:
    """No byte of a secret is in the file."""
    registry.add_token("very-secret-text", "cleveland", now=NOW, expires=NOW + DAY)
    raw = b"".join(path.read_bytes() for path in registry.path.parent.iterdir())
    assert b"very-secret-text" not in raw


def test_failed_issue_leaves_the_token_open(registry: Registry, issue: Issue) -> None:
    """If signing fails, the token is not used up."""
    registry.add_token("s", "cleveland", now=NOW, expires=NOW + DAY)

    def fail() -> Certificate:
        raise CertificateError("no")

    with pytest.raises(CertificateError):
        registry.redeem("s", "cleveland", "key", now=NOW, issue=fail)
    assert registry.redeem("s", "cleveland", "key", now=NOW, issue=issue)


@pytest.mark.redteam
def test_one_of_many_threads_gets_the_token(registry: Registry, issue: Issue) -> None:
    """Of twenty keys that race for a token exactly one wins."""
    registry.add_token("s", "cleveland", now=NOW, expires=NOW + DAY)

    def attempt(i: int) -> bytes | None:
        try:
            return registry.redeem("s", "cleveland", f"key-{i}", now=NOW, issue=issue)
        except TokenError:
            return None

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, range(20)))
    assert sum(r is not None for r in results) == 1
    assert len(registry.certificates()) == 1


@pytest.mark.slow
def test_processes_write_at_once(registry: Registry, authority: Authority) -> None:
    """Several processes add tokens while this one records certificates; nothing is lost."""
    code = (
        "import sys; from pathlib import Path; from datetime import *; from kernfed.pki.registry import Registry\n"
        "r = Registry(Path(sys.argv[1])); now = datetime.now(UTC)\n"
        "for i in range(40): r.add_token(f'{sys.argv[2]}-{i}', 'cleveland', now=now, expires=now)\n"
    )
    with contextlib.ExitStack() as stack:
        commands = [[sys.executable, "-c", code, str(registry.path), str(n)] for n in range(3)]
        children = [stack.enter_context(subprocess.Popen(command)) for command in commands]
        for _ in range(20):
            registry.record(authority.issue(new_key().public_key(), CLEVELAND, now=NOW), "csr", NOW)
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(registry.tokens()) == 120
    assert len(registry.certificates()) == 20


def test_revocation(registry: Registry, issue: Issue) -> None:
    """Revoking a name hits all its certificates once; a revoked one is never renewed."""
    first, second = issue(), issue()
    for certificate in (first, second):
        registry.record(certificate, "token", NOW)
    assert registry.revoke(serial_of(first).upper(), now=NOW)[0].serial == serial_of(first)
    rest = registry.revoke(CLEVELAND, now=NOW, why="lost laptop")
    assert [r.serial for r in rest] == [serial_of(second)]
    assert registry.revoke(CLEVELAND, now=NOW) == []
    assert registry.is_revoked(serial_of(first))
    with contextlib.closing(RegistryReader(registry.path)) as reader:
        assert [r.why for r in reader.revocations(after=1)] == ["lost laptop"]
    assert {c.state(NOW) for c in registry.certificates()} == {"revoked"}
    with pytest.raises(RevokedError):
        registry.renew(serial_of(first), now=NOW, issue=issue)
    assert len(registry.certificates()) == 2


def test_revocations_are_read_without_a_descriptor_to_spare(registry: Registry, issue: Issue) -> None:
    """A reader that has read once goes on where nothing can be opened, and sees what others write, and a new file."""
    registry.record(issue(), "token", NOW)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.closing(RegistryReader(registry.path)) as reader:
        assert reader.revocations(0) == []
        registry.revoke(CLEVELAND, now=NOW)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(ConfigError, match="run as the user who owns it"):
                registry.certificates()
            assert [r.name for r in reader.revocations(0)] == ["cleveland"]
            assert [c.name for c in reader.certificates()] == ["cleveland"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        registry.path.unlink()
        with pytest.raises(ConfigError, match="No such file"):
            reader.revocations(0)
        Registry.create(registry.path, registry_info())
        assert reader.revocations(0) == []


def test_revoking_the_unknown_is_an_error(registry: Registry) -> None:
    """A typing mistake must not look like a revocation."""
    with pytest.raises(CertificateError, match="kernfed pki list"):
        registry.revoke(Principal("hearts", Role.CLIENT, "clevland"), now=NOW)


def test_renewal(registry: Registry, issue: Issue) -> None:
    """A renewal records the new certificate beside the old."""
    old = issue()
    registry.record(old, "token", NOW)
    fresh = issue()
    assert registry.renew(serial_of(old), now=NOW, issue=lambda: fresh) == certificate_pem(fresh)
    assert [c.via for c in registry.certificates()] == ["renewal", "token"]


def test_a_renewed_certificate_ends_the_one_before(registry: Registry, issue: Issue) -> None:
    """The old one counts until a day after the new one was first used; from that use on it begets no other."""
    old, lost, fresh = issue(), issue(), issue()
    registry.record(old, "token", NOW)
    registry.renew(serial_of(old), now=NOW, issue=lambda: lost)  # this answer never arrived
    registry.renew(serial_of(old), now=NOW, issue=lambda: fresh)
    with contextlib.closing(RegistryReader(registry.path)) as reader:
        assert reader.unused(NOW) == (frozenset({serial_of(lost), serial_of(fresh)}), False)
        registry.end_renewed([serial_of(fresh)], NOW)
        assert reader.unused(NOW) == (frozenset({serial_of(lost)}), False)
        with pytest.raises(RevokedError, match=r"in use since 2030-06-01.*tell the operator"):
            registry.renew(serial_of(old), now=NOW, issue=issue)
        registry.end_renewed([serial_of(fresh)], NOW + DAY - timedelta(seconds=1))
        assert not registry.is_revoked(serial_of(old))
        assert reader.unused(NOW + DAY) == (frozenset({serial_of(lost)}), True)
        registry.end_renewed([], NOW + DAY)
        assert [(r.serial, r.why) for r in reader.revocations(0)] == [(serial_of(old), "renewed")]
    assert not registry.is_revoked(serial_of(fresh))
    registry.renew(serial_of(fresh), now=NOW + DAY, issue=issue)


def test_renewals_of_a_name_are_bounded(registry: Registry, issue: Issue) -> None:
    """One name has so many renewals a day; the next day, and another name, has its own."""
    old = issue()
    registry.record(old, "token", NOW)
    for _ in range(MAX_RENEWALS):
        registry.renew(serial_of(old), now=NOW, issue=issue)
    with pytest.raises(BusyError, match="client/cleveland was renewed 30 times within a day"):
        registry.renew(serial_of(old), now=NOW, issue=issue)
    assert len(registry.certificates()) == MAX_RENEWALS + 1
    registry.renew(serial_of(old), now=NOW + 2 * DAY, issue=issue)


def test_a_registry_of_an_earlier_release(registry: Registry, issue: Issue) -> None:
    """A registry that knows of no overlaps is read as it is, and learns of them with its first renewal."""
    with contextlib.closing(sqlite3.connect(registry.path)) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'successions'").fetchone()
    old = issue()
    registry.record(old, "token", NOW)
    with contextlib.closing(RegistryReader(registry.path)) as reader:
        assert reader.unused(NOW) == (frozenset(), False)
        registry.renew(serial_of(old), now=NOW, issue=issue)
        assert len(reader.unused(NOW)[0]) == 1


def test_states(registry: Registry, authority: Authority) -> None:
    """A certificate's state follows the clock."""
    registry.record(authority.issue(new_key().public_key(), CLEVELAND, now=NOW), "token", NOW)
    (record,) = registry.certificates()
    states = [record.state(NOW + DAY * n) for n in (-1, 0, 62, 64, 90)]
    assert states == ["not yet valid", "valid", "valid", "expiring", "expired"]


def test_unusable_files(tmp_path: Path) -> None:
    """A missing, damaged or newer registry is a ConfigError that names the file."""
    with pytest.raises(ConfigError, match="pki init"):
        Registry(tmp_path / "none.sqlite")
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match=r"damaged\.sqlite"):
        Registry(damaged).tokens()
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    with pytest.raises(ConfigError, match="version 0"):
        Registry(empty).tokens()
