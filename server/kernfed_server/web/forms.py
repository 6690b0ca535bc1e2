"""What browsers post: from our own pages alone, by a visitor who holds the form's token, and not too much."""

from __future__ import annotations

import asyncio
import hmac
import urllib.parse
from typing import Final

from starlette.requests import Request

from kernfed.errors import PayloadTooLargeError, PermissionDeniedError, UnavailableError, WireError
from kernfed_server.web.door import Visitor

MAX_BYTES: Final = 4 << 20
"""Of a form: a job file of 1 MiB, each character written as three."""

BODY_S: Final = 30.0
"""For a form to arrive."""

TOKEN: Final = "form_token"  # noqa: S105  # nosec B105  # the name of a field
_MAX_FIELDS: Final = 20


def refuse_other_origins(request: Request) -> None:
    """Refuse a form that another site's page sends.

    Raises:
        PermissionDeniedError: It does.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
    ours = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if (origin is not None and origin != ours) or site not in ("same-origin", "none"):
        raise PermissionDeniedError(
            "this form was sent from another site, and nothing was changed; open the page itself"
        )


async def posted(request: Request, who: Visitor | None = None) -> dict[str, str]:
    """Fields of a form; of a visitor's, only with the token of the visitor's own pages.

    Raises:
        PermissionDeniedError: It comes from elsewhere, or its token is missing or old.
        PayloadTooLargeError: It is too large.
        UnavailableError: It does not arrive in time.
        WireError: It is not a form.
    """
    refuse_other_origins(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise WireError("this is not a form of the page: send it as application/x-www-form-urlencoded")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BYTES:
                    raise PayloadTooLargeError(f"the form has more than {MAX_BYTES} bytes; it holds settings, not data")
    except TimeoutError:
        raise UnavailableError(f"the form did not arrive within {BODY_S:g} s; send it again") from None
    try:
        fields = dict(
            urllib.parse.parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
            )
        )
    except ValueError as err:
        raise WireError("the form cannot be read as UTF-8 fields; open the page again and send it from there") from err
    if who is not None and not hmac.compare_digest(fields.get(TOKEN, "").encode(), who.form_token.encode()):
        raise PermissionDeniedError(
            "the form is of a page from before the coordinator's restart or your sign-in, and nothing was changed: "
            "open the page again and repeat it"
        )
    return fields
