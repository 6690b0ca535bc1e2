"""Enrolment token texts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kernfed.errors import TokenError
from kernfed.pki.tokens import PREFIX, Token, decode_token, encode_token, hash_secret, new_secret

TOKEN = Token(
    enrolment="fed.example.org:8471",
    federation="hearts",
    client="cleveland",
    ca_sha256="ab" * 32,
    secret=new_secret(),
    expires=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
)


def test_round_trip() -> None:
    """A token text holds all that a token says, on one line."""
    text = encode_token(TOKEN)
    assert text.startswith(PREFIX)
    assert "\n" not in text
    assert decode_token(text) == TOKEN


def test_mail_damage_heals() -> None:
    """Line breaks and spaces that a mail program puts in do no harm."""
    text = encode_token(TOKEN)
    assert decode_token(f"  {text[:60]}\r\n {text[60:]}\n") == TOKEN


@pytest.mark.parametrize(
    "text",
    ["", "hello", "kft1.", "kft1.!!!", "kft1.e30", encode_token(TOKEN)[:-9], "kft1." + "A" * 5000, "kft2." + "A" * 20],
)
def test_damaged_token_is_refused(text: str) -> None:
    """Anything that is not a whole token is a TokenError, never another exception."""
    with pytest.raises(TokenError):
        decode_token(text)


def test_secret_is_not_shown() -> None:
    """Neither the representation nor the stored hash gives the secret away."""
    assert TOKEN.secret not in repr(TOKEN)
    assert TOKEN.secret not in hash_secret(TOKEN.secret)
    assert len({new_secret() for _ in range(100)}) == 100
