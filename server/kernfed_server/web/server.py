"""The port of the operator's page: uvicorn on the coordinator's loop, TLS with the coordinator's certificate.

The page is loaded where an address is set, and nowhere else: a coordinator without one starts without its packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn

from kernfed.errors import KernfedError, UnavailableError
from kernfed.pki import folder as files
from kernfed.pki.identity import Identity
from kernfed.serving.connections import PatientProtocol, configured, listener
from kernfed.wire.channel import HANDSHAKE_TIMEOUT_S, address, split_listen
from kernfed_server.config import WebSection
from kernfed_server.web.app import make_app
from kernfed_server.web.door import Page
from kernfed_server.web.sign_in import CERTIFICATE
from kernfed_server.web.site import Site

log = structlog.get_logger(__name__)

_HEADER_BYTES: Final = 16 << 10
_STOP_S: Final = 1
_LOOK_S: Final = 30.0
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  # nosec B104  # compared, not bound


class PageProtocol(PatientProtocol):
    """Tells the page which certificate a connection showed, and ends connections that ask nothing."""

    idle_s = HANDSHAKE_TIMEOUT_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        secured = transport.get_extra_info("ssl_object")
        certificate = secured.getpeercert(binary_form=True) if secured is not None else None
        page = self.app

        async def with_certificate(scope: Any, receive: Any, send: Any) -> None:
            scope[CERTIFICATE] = certificate
            await page(scope, receive, send)

        self.app = with_certificate


class _Server(uvicorn.Server):
    """Leaves signals to the coordinator, and says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        """See `uvicorn.Server`."""
        super().__init__(config)
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        await super().startup(sockets)
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@contextlib.asynccontextmanager
async def serving_page(listen: str, section: WebSection, folder: Path, site: Site) -> AsyncIterator[Page]:
    """Serve the page for as long as the context lasts.

    Args:
        listen: host:port; port 0: one that the system chooses.
        section: Of the coordinator file.
        folder: The coordinator's identity.
        site: What the page shows.

    Raises:
        UnavailableError: The port is taken, or the address is not of this machine.
        IdentityError: The coordinator's identity cannot be used.
    """
    host, wanted = split_listen(listen)
    context = _tls(folder)
    taken = "another process may hold the port, or the address is not of this machine"
    made = listener(host, wanted, f"web: cannot listen on {listen}", taken)
    port = made.getsockname()[1]
    config = configured(make_app(site), context, PageProtocol, stop_s=_STOP_S, header_bytes=_HEADER_BYTES)
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[made]))
    renewing = asyncio.ensure_future(_keep_certificate(context, folder))
    try:
        answers = asyncio.ensure_future(server.answers.wait())
        await asyncio.wait([answers, serving], return_when=asyncio.FIRST_COMPLETED)
        answers.cancel()
        if serving.done():
            await serving
            raise UnavailableError(f"web: the page on {listen} ended as it began; the log says why")
        yield Page(site.door, section.address or address("" if host in _EVERYWHERE else host, port), port)
    finally:
        renewing.cancel()
        site.close()
        server.should_exit = True
        done, late = await asyncio.wait([serving, renewing], timeout=_STOP_S + 5)
        for task in late:
            task.cancel()
        for task in done:
            if not task.cancelled() and (why := task.exception()) is not None:
                log.error("the page ended by an error", error=repr(why))
        made.close()


def _tls(folder: Path) -> ssl.SSLContext:
    """Server's side of TLS: a visitor may show a certificate of the federation, and need not."""
    identity = Identity.load(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=identity.ca_pem.decode())
    context.load_cert_chain(folder / files.CERT, folder / files.KEY)
    return context


async def _keep_certificate(context: ssl.SSLContext, folder: Path) -> None:
    """Show new connections the certificate that lies on the disk, also once it was renewed."""
    shown = Identity.load(folder, check_dates=False).serial
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            serial = (await asyncio.to_thread(Identity.load, folder, check_dates=False)).serial
            if serial != shown:
                context.load_cert_chain(folder / files.CERT, folder / files.KEY)
                shown = serial
        except (OSError, KernfedError) as err:
            log.warning("renewed certificate not usable by the page, the old one stays", error=str(err))
