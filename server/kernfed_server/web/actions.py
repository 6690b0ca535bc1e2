"""What an operator does from the page: submit and cancel, by the functions behind `kernfed job`."""

from __future__ import annotations

import secrets
import urllib.parse

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kernfed.errors import KernfedError, UnavailableError
from kernfed_server.web.door import Visitor
from kernfed_server.web.forms import posted
from kernfed_server.web.rendering import page, status_of_error
from kernfed_server.web.site import Site


async def compose(request: Request, site: Site, who: Visitor) -> Response:
    """The form for a job file; it draws the request id by which a form that is sent twice is one job."""
    del request
    return page("submit.html.j2", site, who, job_toml="", request_id=secrets.token_hex(16), error=None)


async def submit(request: Request, site: Site, who: Visitor) -> Response:
    """Check a job file as `kernfed job submit` has it checked, and queue it; what is wrong is said above the text."""
    fields = await posted(request, who)
    job_toml, request_id = fields.get("job_toml", "").replace("\r\n", "\n"), fields.get("request_id", "")
    try:
        job = await site.runs.submit(job_toml, request_id, who.caller.name)
    except UnavailableError:
        raise
    except KernfedError as err:
        facts = {"job_toml": job_toml, "request_id": secrets.token_hex(16), "error": err}
        return page("submit.html.j2", site, who, status=status_of_error(err), **facts)
    return _to_job(job.job_id)


async def cancel(request: Request, site: Site, who: Visitor) -> Response:
    """Stop a job; what it has reached is kept."""
    await posted(request, who)
    job = await site.runs.cancel(request.path_params["job_id"], who.caller.name)
    return _to_job(job.job_id)


def _to_job(job_id: str) -> Response:
    return RedirectResponse(f"/jobs/{urllib.parse.quote(job_id, safe='')}", status_code=303)
