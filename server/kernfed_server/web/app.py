"""The page as an ASGI application: its addresses, its headers, and an answer in words to whatever goes wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernfed.errors import KernfedError, PermissionDeniedError
from kernfed.status import INTERNAL_TEXT
from kernfed_server.web import actions, live, looks, sign_in
from kernfed_server.web.door import Visitor
from kernfed_server.web.rendering import static, tell, tell_words
from kernfed_server.web.site import Site

log = structlog.get_logger(__name__)

HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with `no-referrer` browsers would hide the origin of our own forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""On every answer that does not set its own."""

_ASTRAY: Final = {
    404: "there is no such page here; the links above lead on",
    405: "this page is not asked so, and nothing was changed",
}
Endpoint = Callable[[Request, Site, Visitor], Awaitable[Response]]
Handler = Callable[[Request], Awaitable[Response]]


def make_app(site: Site) -> ASGIApp:
    """Make the application."""

    def answering(answer: Callable[[Request], Awaitable[Response]]) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return await answer(request)
            except KernfedError as err:
                return told(err)
            except Exception:
                log.exception("page failed", path=request.url.path)
                return told(KernfedError(INTERNAL_TEXT))

        return handle

    def seen(endpoint: Endpoint, *, by_clients: bool = False) -> Handler:
        async def answer(request: Request) -> Response:
            who = sign_in.visitor(request, site)
            if not (by_clients or who.is_operator):
                raise PermissionDeniedError(f"{who.caller} may not see this; it is for operators")
            try:
                return await endpoint(request, site, who)
            except KernfedError as err:
                return tell(site, who, err)

        return answering(answer)

    def open_to_all(endpoint: Callable[[Request, Site], Awaitable[Response]]) -> Handler:
        return answering(lambda request: endpoint(request, site))

    def told(err: KernfedError) -> Response:
        return tell(site, None, err)

    async def astray(request: Request, err: Exception) -> Response:
        del request
        if isinstance(err, HTTPException) and err.status_code in _ASTRAY:
            return tell_words(site, None, err.status_code, _ASTRAY[err.status_code])
        return told(KernfedError(INTERNAL_TEXT))

    routes = [
        Route("/", seen(looks.jobs, by_clients=True)),
        Route("/live", seen(live.jobs, by_clients=True)),
        Route("/clients", seen(looks.clients)),
        Route("/clients/live", seen(live.clients)),
        Route("/jobs/{job_id}", seen(looks.job)),
        Route("/jobs/{job_id}/live", seen(live.job)),
        Route("/jobs/{job_id}/timeline", seen(looks.timeline)),
        Route("/jobs/{job_id}/files/{name}", seen(looks.file)),
        Route("/submit", seen(actions.compose)),
        Route("/submit", seen(actions.submit), methods=["POST"]),
        Route("/jobs/{job_id}/cancel", seen(actions.cancel), methods=["POST"]),
        Route("/sign-in", open_to_all(sign_in.ask)),
        Route("/sign-in", open_to_all(sign_in.enter), methods=["POST"]),
        Route("/sign-out", seen(sign_in.leave, by_clients=True), methods=["POST"]),
        Route("/static/{name}", open_to_all(static)),
    ]
    return _Headed(Starlette(routes=routes, exception_handlers={404: astray, 405: astray, 500: astray}))


class _Headed:
    """Puts `HEADERS` on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *((k, v) for k, v in HEADERS if k not in own)]
            await send(message)

        await self._app(scope, receive, headed)
