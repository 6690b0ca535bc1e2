"""Coming in by a one-time code, and going out.

The code stands behind the `#` of the link, so no browser sends it in an address, and no log has it. The page's script
puts it into the form; without scripts a person pastes it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kernfed_server.web.door import COOKIE_S, Visitor
from kernfed_server.web.forms import posted, refuse_other_origins
from kernfed_server.web.rendering import page
from kernfed_server.web.site import Site

COOKIE = "__Host-kernfed"
"""Such a name binds the cookie to this host and to TLS."""


CERTIFICATE = "kernfed.certificate"
"""Key of a request's scope: the certificate that the connection showed, DER, or None."""


def visitor(request: Request, site: Site) -> Visitor:
    """Who sends a request; errors as those of `Door.visitor`."""
    return site.door.visitor(request.cookies.get(COOKIE, ""), request.scope.get(CERTIFICATE))


async def ask(request: Request, site: Site) -> Response:
    """The form; changes nothing, whatever the address holds."""
    del request
    return page("sign_in.html.j2", site, None)


async def enter(request: Request, site: Site) -> Response:
    """Trade the code of the form for a cookie."""
    refuse_other_origins(request)
    fields = await posted(request)
    code = fields.get("code", "").strip()
    cookie = site.door.enter(code.rpartition("#")[2])
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(COOKIE, cookie, max_age=int(COOKIE_S), secure=True, httponly=True, samesite="strict", path="/")
    return answer


async def leave(request: Request, site: Site, who: Visitor) -> Response:
    """Forget the cookie."""
    await posted(request, who)
    site.door.leave(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/sign-in", status_code=303)
    answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    return answer
