"""Who may come in to the operator's page: by a certificate of the federation, or by a one-time code.

An operator asks for the code over mutual TLS (`kernfed web`). Whoever brings it, once and in time, gets a cookie that
stands for the operator's certificate: a revocation, and the certificate's end, shut it out like its holder. Codes and
cookies are kept as digests, and live in memory, so they end with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from kernfed.errors import AuthError, PermissionDeniedError
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Caller, Role, caller_of_der, refuse_unfit

log = structlog.get_logger(__name__)

CODE_S: Final = 120.0
"""A code is good for so long."""

COOKIE_S: Final = 8 * 3600.0
"""A cookie is good for so long."""

_MAX_CODES: Final = 100
_MAX_COOKIES: Final = 1000
_SECRET_BYTES: Final = 32
_MAX_SECRET: Final = 64
"""Characters of a code or cookie; a longer one is none of ours."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who came in."""

    caller: Caller
    form_token: str
    """Stands in each form of the page, and comes back with it: no other site knows it."""
    by_code: bool = False
    """Whether a cookie stands for the certificate, so that the visitor may sign out."""

    @property
    def is_operator(self) -> bool:
        """Whether the visitor may see everything and act."""
        return self.caller.role is Role.OPERATOR


@dataclass(frozen=True, slots=True)
class _Kept:
    caller: Caller
    until: float
    form_token: str


class Door:
    """Codes, cookies and certificates of one life of the coordinator."""

    def __init__(
        self,
        federation: str,
        is_revoked: Callable[[str], bool],
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nobody is in yet.

        Args:
            federation: Only its certificates are let in.
            is_revoked: Whether a serial number was revoked; answers at once, from memory.
            now: Time of day.
            clock: Seconds, for the ends of codes and cookies.
        """
        self.federation = federation
        self._is_revoked = is_revoked
        self._now = now
        self._clock = clock
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._codes: OrderedDict[bytes, _Kept] = OrderedDict()
        self._cookies: OrderedDict[bytes, _Kept] = OrderedDict()

    def make_code(self, operator: Caller) -> tuple[str, datetime]:
        """A code that signs an operator in once, and when it ends."""
        return self._keep(self._codes, _MAX_CODES, operator, CODE_S), self._now() + timedelta(seconds=CODE_S)

    def enter(self, code: str) -> str:
        """Trade a code for a cookie.

        Raises:
            AuthError: The code is unknown, used or out of time.
            RevokedError: The operator's certificate was revoked since.
        """
        kept = self._find(self._codes, code)
        if kept is None:
            raise AuthError(
                f"this link was used already, is older than {CODE_S / 60:.0f} minutes, or is of an earlier start of "
                "the coordinator: make a new one with `kernfed web`"
            )
        del self._codes[_digest(code)]
        self._check(kept.caller)
        log.info("signed in to the page", who=str(kept.caller))
        return self._keep(self._cookies, _MAX_COOKIES, kept.caller, COOKIE_S)

    def leave(self, cookie: str) -> None:
        """A cookie opens nothing from now on."""
        self._cookies.pop(_digest(cookie), None)

    def visitor(self, cookie: str, certificate: bytes | None) -> Visitor:
        """Who sends a request.

        Args:
            cookie: Of the request; empty: none.
            certificate: That the connection showed, DER, checked by TLS against the federation's CA; None: none.

        Raises:
            AuthError: Neither a cookie nor a certificate.
            RevokedError: The certificate was revoked.
            PermissionDeniedError: It is of a role that has no page.
        """
        if (kept := self._find(self._cookies, cookie)) is not None:
            self._check(kept.caller)
            return Visitor(kept.caller, kept.form_token, by_code=True)
        if certificate is None:
            raise AuthError(
                "nobody is signed in: run `kernfed web` and open the link that it prints, or show the browser the "
                "certificate of an operator or a client"
            )
        caller = caller_of_der(certificate)
        if caller.role not in (Role.OPERATOR, Role.CLIENT):
            raise PermissionDeniedError(f"{caller} has no page here; it is for operators and clients")
        self._check(caller)
        return Visitor(caller, hmac.digest(self._secret, caller.serial.encode(), "sha256").hex())

    def _check(self, caller: Caller) -> None:
        refuse_unfit(caller, self.federation, self._is_revoked, self._now())

    def _keep(self, place: OrderedDict[bytes, _Kept], limit: int, caller: Caller, seconds: float) -> str:
        text = secrets.token_urlsafe(_SECRET_BYTES)
        place[_digest(text)] = _Kept(caller, self._clock() + seconds, secrets.token_urlsafe(_SECRET_BYTES))
        if len(place) > limit:
            place.popitem(last=False)
        return text

    def _find(self, place: OrderedDict[bytes, _Kept], text: str) -> _Kept | None:
        if not text or len(text) > _MAX_SECRET or (kept := place.get(_digest(text))) is None:
            return None
        if self._clock() >= kept.until:
            del place[_digest(text)]
            return None
        return kept


@dataclass(frozen=True, slots=True)
class Page:
    """The page as the rest of the coordinator knows it."""

    door: Door
    address: str
    """host:port for links; the host is empty where the page listens on every address."""
    port: int


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
