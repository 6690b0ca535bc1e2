"""Enrolment tokens: one line that a site administrator pastes, valid once and for a limited time.

The text is `kft1.` and base64url of JSON. It holds where to enrol, whom to trust (the CA's SHA-256 fingerprint) and
a secret of 256 bits, of which the coordinator keeps only the SHA-256.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from kernfed.errors import ConfigError, TokenError
from kernfed.pki.names import check_name

PREFIX = "kft1."
_MAX_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Token:
    """Content of a token. `secret` is shown by no log and kept by no database."""

    enrolment: str
    """`host:port` of the enrolment port."""
    federation: str
    client: str
    ca_sha256: str
    """Fingerprint of the CA certificate's DER, 64 hexadecimal digits."""
    secret: str
    expires: datetime

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Token(client={self.client!r}, enrolment={self.enrolment!r}, expires={self.expires:%Y-%m-%dT%H:%MZ})"


def new_secret() -> str:
    """256 random bits as text."""
    return secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """The hash that the registry keeps of a secret: it has 256 random bits, so one plain SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def encode_token(token: Token) -> str:
    """Write a token as one line of text."""
    fields = {
        "at": token.enrolment,
        "fed": token.federation,
        "name": token.client,
        "ca": base64.urlsafe_b64encode(bytes.fromhex(token.ca_sha256)).decode(),
        "key": token.secret,
        "exp": int(token.expires.timestamp()),
    }
    raw = json.dumps(fields, separators=(",", ":")).encode()
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_token(text: str) -> Token:
    """Read a token text; spaces and line breaks that mail programs put in do no harm.

    Raises:
        TokenError: The text is no token, or part of it is missing.
    """
    text = "".join(text.split())
    if not text.startswith(PREFIX) or len(text) > _MAX_LENGTH:
        raise TokenError(
            f"this is not an enrolment token: it starts with {PREFIX!r}; ask the operator to send it again"
        )
    body = text.removeprefix(PREFIX)
    try:
        fields = json.loads(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True))
        token = Token(
            enrolment=str(fields["at"]),
            federation=check_name(str(fields["fed"]), "federation"),
            client=check_name(str(fields["name"]), "client"),
            ca_sha256=base64.urlsafe_b64decode(str(fields["ca"])).hex(),
            secret=str(fields["key"]),
            expires=datetime.fromtimestamp(int(fields["exp"]), UTC),
        )
    except (ValueError, KeyError, TypeError, OverflowError, OSError, binascii.Error, ConfigError):
        raise TokenError("the enrolment token is damaged, perhaps cut short: copy the whole line again") from None
    if len(token.ca_sha256) != 64 or not token.secret.isascii():
        raise TokenError("the enrolment token is damaged, perhaps cut short: copy the whole line again")
    return token
