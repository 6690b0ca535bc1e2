"""The record of the federation's CA: certificates issued, tokens, revocations, in one SQLite file.

The coordinator and the operator's commands use the file at once, from several processes: WAL mode, a short
connection per operation, and every change in one immediate transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from cryptography import x509

from kernfed.errors import CertificateError, ConfigError, RevokedError, TokenError
from kernfed.pki import successions
from kernfed.pki.authority import certificate_pem, serial_of
from kernfed.pki.names import Principal, Role, principal_of
from kernfed.pki.records import FederationInfo, IssuedCertificate, Revocation, TokenRecord
from kernfed.pki.registry_file import (
    RENEWED,
    SCHEMA,
    VERSION,
    at,
    certificates,
    connect,
    insert,
    maybe_at,
    refuse_other_release,
    told,
)
from kernfed.pki.tokens import hash_secret
from kernfed.wording import moment

REGISTRY = "registry.sqlite"


class Registry:
    """The registry in one SQLite file. Cheap to make; holds no connection; safe in threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ConfigError(f"{path} is missing: make a federation first with `kernfed pki init --federation NAME`")

    @classmethod
    def create(cls, path: Path, info: FederationInfo) -> Registry:
        """Make the file.

        Raises:
            ConfigError: It exists.
        """
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            raise ConfigError(f"{path} exists; nothing was changed") from None
        registry = cls(path)
        with registry._connection(check_version=False) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        registry.set_info(info)
        registry._note_books("none")
        return registry

    def info(self) -> FederationInfo:
        """Name and addresses of the federation."""
        with self._connection() as db:
            rows = dict(db.execute("SELECT key, value FROM about").fetchall())
        return FederationInfo(
            rows["federation"], rows["coordinator"], rows["enrolment"], tuple(json.loads(rows["hosts"]))
        )

    def set_info(self, info: FederationInfo) -> None:
        """Replace name and addresses of the federation."""
        rows = {
            "federation": info.federation,
            "coordinator": info.coordinator,
            "enrolment": info.enrolment,
            "hosts": json.dumps(info.hosts),
        }
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(rows.items()))

    def has_books(self) -> bool | None:
        """Whether a coordinator has begun a database for this federation; None: made before that was noted."""
        with self._connection() as db:
            row = db.execute("SELECT value FROM about WHERE key = 'books'").fetchone()
        return None if row is None else row[0] == "begun"

    def books_begun(self) -> None:
        """Note that there is a database with this federation's jobs: from now on an empty one was lost."""
        self._note_books("begun")

    def _note_books(self, value: str) -> None:
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO about VALUES ('books', ?)", (value,))

    def record(self, certificate: x509.Certificate, via: str, now: datetime) -> None:
        """Note a certificate that was issued."""
        with self._transaction() as db:
            insert(db, certificate, via, now)

    def certificates(self) -> list[IssuedCertificate]:
        """All certificates, by role and name, the newest first."""
        with self._connection() as db:
            return certificates(db)

    def add_token(self, secret: str, client: str, *, now: datetime, expires: datetime) -> int:
        """Note a new token; keeps only the SHA-256 of its secret. Returns its id."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO tokens (secret_sha256, client, created_at, expires_at) VALUES (?, ?, ?, ?)",
                (hash_secret(secret), client, now.timestamp(), expires.timestamp()),
            )
            return int(cursor.lastrowid or 0)

    def tokens(self) -> list[TokenRecord]:
        """All tokens, the newest first."""
        with self._connection() as db:
            rows = db.execute(
                "SELECT id, client, created_at, expires_at, used_at, cancelled_at FROM tokens ORDER BY id DESC"
            ).fetchall()
        return [
            TokenRecord(
                i,
                client,
                at(created),
                at(expires),
                maybe_at(used),
                maybe_at(cancelled),
            )
            for i, client, created, expires, used, cancelled in rows
        ]

    def knows_token(self, secret: str) -> bool:
        """Whether a token of this secret was ever made here."""
        with self._connection() as db:
            found = db.execute("SELECT 1 FROM tokens WHERE secret_sha256 = ?", (hash_secret(secret),)).fetchone()
        return found is not None

    def redeem(
        self, secret: str, client: str, key_sha256: str, *, now: datetime, issue: Callable[[], x509.Certificate]
    ) -> bytes:
        """Use up a token, once, and record the certificate that `issue` makes for it.

        Asked again with the same secret and the same public key (an answer was lost), it returns the first
        certificate again.

        Returns:
            The certificate in PEM.

        Raises:
            TokenError: The token is unknown, used, expired, cancelled, or made for another client.
        """
        with self._transaction() as db:
            row = db.execute(
                "SELECT id, client, expires_at, used_at, key_sha256, serial, cancelled_at FROM tokens"
                " WHERE secret_sha256 = ?",
                (hash_secret(secret),),
            ).fetchone()
            if row is None:
                raise TokenError("this federation never issued this token: ask its operator for a new one")
            token_id, owner, expires_at, used_at, used_key, serial, cancelled_at = row
            if owner != client:
                raise TokenError(f"this token was made for {owner!r}, not for {client!r}: ask for one of your own")
            if used_at is not None and used_key == key_sha256 and now.timestamp() < expires_at:
                (pem,) = db.execute("SELECT pem FROM certificates WHERE serial = ?", (serial,)).fetchone()
                return bytes(pem)
            if used_at is not None:
                raise TokenError(
                    f"this token was used on {moment(at(used_at))}; each works once. If that was not "
                    f"you, tell the operator, who can run `kernfed pki revoke {owner}` and make a new token"
                )
            if cancelled_at is not None:
                raise TokenError("this token was cancelled by the operator: ask for a new one")
            if now.timestamp() >= expires_at:
                raise TokenError(f"this token expired on {moment(at(expires_at))}: ask the operator for a new one")
            certificate = issue()
            insert(db, certificate, "token", now)
            db.execute(
                "UPDATE tokens SET used_at = ?, key_sha256 = ?, serial = ? WHERE id = ?",
                (now.timestamp(), key_sha256, serial_of(certificate), token_id),
            )
            return certificate_pem(certificate)

    def renew(self, serial: str, *, now: datetime, issue: Callable[[], x509.Certificate]) -> bytes:
        """Record the certificate that `issue` makes in place of one that still counts.

        The old one counts until `OVERLAP` after the new one was first used, for an answer may get lost on its way. The
        coordinator's own, which nobody else has, is left to its end.

        Returns:
            The new certificate in PEM.

        Raises:
            RevokedError: The old certificate was revoked, or was renewed before by somebody who uses the new one.
            BusyError: The name was renewed `MAX_RENEWALS` times within a day.
        """
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM revocations WHERE serial = ?", (serial,)).fetchone():
                raise RevokedError(
                    "this certificate was revoked and cannot be renewed: ask the operator for a new token"
                )
            successions.refuse_second(db, serial)
            certificate = issue()
            who = principal_of(certificate)
            if who.role is not Role.COORDINATOR:
                successions.refuse_many(db, who, now)
                successions.note(db, serial, serial_of(certificate))
            insert(db, certificate, "renewal", now)
            return certificate_pem(certificate)

    def end_renewed(self, used: Iterable[str], now: datetime) -> None:
        """Revoke the certificates whose successors have been in use for `OVERLAP`.

        Args:
            used: Serials of successors that were seen in use since the last time.
            now: The time.
        """
        with self._transaction() as db:
            for old in successions.over(db, used, now):
                db.execute(
                    "INSERT OR IGNORE INTO revocations (serial, role, name, revoked_at, why)"
                    " SELECT serial, role, name, ?, ? FROM certificates WHERE serial = ?",
                    (now.timestamp(), RENEWED, old),
                )

    def revoke(self, target: Principal | str, *, now: datetime, why: str = "") -> list[Revocation]:
        """Revoke one certificate (its serial), or all of a name together with its open tokens.

        Returns:
            What was revoked now; empty where all was revoked before.

        Raises:
            CertificateError: The registry knows no such certificate.
            ConfigError: The reason is that of renewals.
        """
        if why == RENEWED:
            raise ConfigError(
                f"{RENEWED!r} is what the registry says of a certificate that was renewed; say it otherwise"
            )
        with self._transaction() as db:
            key: tuple[str, ...]
            if isinstance(target, Principal):
                where, key = "role = ? AND name = ?", (str(target.role), target.name)
            else:
                where, key = "serial = ?", (target.lower(),)
            known = db.execute(
                f"SELECT serial, role, name, not_after FROM certificates WHERE {where}",  # noqa: S608  # nosec B608  # our own text
                key,
            ).fetchall()
            cancelled = 0
            if isinstance(target, Principal) and target.role is Role.CLIENT:
                cancelled = db.execute(
                    "UPDATE tokens SET cancelled_at = ? WHERE client = ? AND used_at IS NULL AND cancelled_at IS NULL",
                    (now.timestamp(), target.name),
                ).rowcount
            if not known and not cancelled:
                raise CertificateError(
                    f"no certificate of {target} in {self.path}: `kernfed pki list` shows those there are"
                )
            revoked = []
            for serial, role, name, not_after in known:
                if not_after <= now.timestamp():
                    continue
                cursor = db.execute(
                    "INSERT OR IGNORE INTO revocations (serial, role, name, revoked_at, why) VALUES (?, ?, ?, ?, ?)",
                    (serial, role, name, now.timestamp(), why),
                )
                if cursor.rowcount:
                    revoked.append(Revocation(int(cursor.lastrowid or 0), serial, Role(role), name, now, why))
            return revoked

    def is_revoked(self, serial: str) -> bool:
        """Whether a certificate was revoked."""
        with self._connection() as db:
            return db.execute("SELECT 1 FROM revocations WHERE serial = ?", (serial,)).fetchone() is not None

    @contextmanager
    def _connection(self, *, check_version: bool = True) -> Iterator[sqlite3.Connection]:
        with told(self.path), closing(connect(self.path)) as db:
            if check_version:
                refuse_other_release(self.path, db)
            yield db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
