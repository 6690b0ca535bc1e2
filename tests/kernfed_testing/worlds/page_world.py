"""The operator's page over a run manager without its network, and browsers that ask it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from kernfed.pki.identity import Identity, Role, caller_of_der
from kernfed_server.config import WebSection
from kernfed_server.federation.standing import Standing
from kernfed_server.web.app import make_app
from kernfed_server.web.door import Door, Page
from kernfed_server.web.server import serving_page
from kernfed_server.web.sign_in import CERTIFICATE
from kernfed_server.web.site import Site
from kernfed_testing.identities import Identities, make_identities
from kernfed_testing.worlds.job_world import World, world

ORIGIN = "https://page.test"


@dataclass
class Standings:
    """Where the open steps stand, as the test says."""

    of: dict[str, Standing] = field(default_factory=dict)

    def standings(self, job_ids: Collection[str]) -> dict[str, Standing]:
        """See `SessionRegistry.standings`."""
        return {job_id: standing for job_id, standing in self.of.items() if job_id in job_ids}


@dataclass
class PageWorld:
    """A page, its jobs and its certificates."""

    jobs: World
    site: Site
    steps: Standings
    identities: Identities
    revoked: set[str]
    """Serial numbers."""
    clock: list[float]
    """Seconds, for the ends of codes and cookies."""

    def browser(self, role: Role | None = None, name: str = "ann", **options: Any) -> httpx.AsyncClient:
        """A browser that shows a certificate of a role; None: none."""
        certificate = None if role is None else self.certificate(role, name)
        app: Any = make_app(self.site)

        async def with_certificate(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, CERTIFICATE: certificate}, receive, send)

        transport = httpx.ASGITransport(with_certificate, raise_app_exceptions=True)
        return httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"origin": ORIGIN}, **options)

    def certificate(self, role: Role, name: str) -> bytes:
        """Of a role and a name, DER."""
        folder = self.identities.operator if (role, name) == (Role.OPERATOR, "ann") else None
        made = folder or self.identities.root / f"{role}-{name}"
        if not made.exists():
            self.identities.make(role, name)
        return Identity.load(made).certificate.public_bytes(_der())

    def served(self) -> contextlib.AbstractAsyncContextManager[Page]:
        """The page on a port of this machine, over TLS."""
        site, folder = self.site, self.identities.coordinator
        return serving_page("127.0.0.1:0", WebSection(), folder, site)

    def code(self) -> str:
        """Signs ann in once."""
        return self.site.door.make_code(caller_of_der(self.certificate(Role.OPERATOR, "ann")))[0]


def _der() -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


def token_in(page: str) -> str:
    """The token of the first form of a page."""
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found is not None, page
    return found[1]


@contextlib.asynccontextmanager
async def page_world(
    folder: Path, *clients: str, identities: Identities | None = None, **options: Any
) -> AsyncIterator[PageWorld]:
    """A page over `world`; arguments as there. `identities`: made here where None."""
    async with world(folder / "jobs", *clients, **options) as jobs:
        identities = identities or make_identities(folder)
        revoked: set[str] = set()
        clock = [0.0]
        now: Callable[[], float] = lambda: clock[0]  # noqa: E731
        steps = Standings()
        site = Site(Door(identities.pki.federation, revoked.__contains__, clock=now), jobs.runs, jobs.store, steps)
        yield PageWorld(jobs, site, steps, identities, revoked, clock)
