"""Templates into answers; every text in them is escaped."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any, Final

import grpc
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from kernfed.errors import KernfedError, PayloadTooLargeError, UnknownArtifactError
from kernfed.status import status_of
from kernfed_server.web.door import Visitor
from kernfed_server.web.site import Site

_STATIC: Final = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}


_S = grpc.StatusCode
_HTTP: Final = {
    _S.INVALID_ARGUMENT: 400,
    _S.UNAUTHENTICATED: 401,
    _S.PERMISSION_DENIED: 403,
    _S.NOT_FOUND: 404,
    _S.ALREADY_EXISTS: 409,
    _S.FAILED_PRECONDITION: 409,
    _S.RESOURCE_EXHAUSTED: 429,
    _S.UNAVAILABLE: 503,
}
"""Statuses of errors; others are 500."""
_WORDS: Final = {
    400: "That cannot be done so",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not here",
    405: "Not so",
    409: "Not now",
    413: "Too much",
    429: "Too much at a time",
    503: "Not now",
}
_OTHERWISE: Final = "Something went wrong"


def status_of_error(err: KernfedError) -> int:
    """Status of an answer that tells of an error."""
    return 413 if isinstance(err, PayloadTooLargeError) else _HTTP.get(status_of(err), 500)


def tell(site: Site, who: Visitor | None, err: KernfedError) -> Response:
    """A page that says what is wrong and what to do; to whoever is not signed in, also where to."""
    return tell_words(site, who, status_of_error(err), str(err), err.reason)


def tell_words(site: Site, who: Visitor | None, status: int, text: str, reason: str = "") -> Response:
    """The same, in words of one's own."""
    facts = {"status_words": _WORDS.get(status, _OTHERWISE), "text": text, "reason": reason}
    return page("told.html.j2", site, who, status=status, **facts)


def page(template: str, site: Site, who: Visitor | None, *, status: int = 200, **facts: Any) -> Response:
    """A whole page."""
    return Response(render(template, site, who, **facts), status, media_type="text/html; charset=utf-8")


def render(template: str, site: Site, who: Visitor | None, **facts: Any) -> str:
    """A template's text."""
    return _environment().get_template(template).render(federation=site.door.federation, who=who, **facts)


async def static(request: Request, site: Site) -> Response:
    """A file of the page itself."""
    del site
    name = request.path_params["name"]
    if name not in _STATIC:
        raise UnknownArtifactError("the page has no such file")
    return Response(_static(name), media_type=_STATIC[name], headers={"cache-control": "no-cache"})


@functools.cache
def _static(name: str) -> bytes:
    own = (resources.files("kernfed_server.web") / "static" / name).read_bytes()
    if name != "page.css":
        return own
    return (resources.files("kernfed.report") / "templates" / "style.css").read_bytes() + own


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("kernfed_server.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
