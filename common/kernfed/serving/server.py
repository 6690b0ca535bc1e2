"""The port of a served model: uvicorn, with TLS where a certificate is given, until a signal ends it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import uvicorn

from kernfed.errors import ConfigError, UnavailableError
from kernfed.models.estimator import Estimator
from kernfed.serving.app import make_app
from kernfed.serving.connections import PatientProtocol

_CONNECTIONS = 200
_STOP_S = 5


def serve(
    model: Estimator,
    version: str,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serve a model until the process gets SIGINT or SIGTERM.

    Args:
        model: As `kernfed.load_model` gives it.
        version: Of the model.
        host: Address to listen on.
        port: 0: one that the system chooses.
        certificate: PEM file for TLS; None: plain HTTP.
        key: Of the certificate.
        ready: Called with the service's address before it answers.

    Raises:
        ConfigError: The certificate cannot be used.
        UnavailableError: The port is taken, or the address is not of this machine.
    """
    config = uvicorn.Config(
        make_app(model, version),
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_STOP_S,
    )
    if certificate is not None:
        config.load()
        config.ssl = _tls(certificate, key)
    with _listener(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        ready(f"{'https' if certificate else 'http'}://{shown}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run([listener])


def _tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=str)  # an empty one: nobody is asked at a terminal
    except (OSError, ssl.SSLError) as err:
        raise ConfigError(
            f"{certificate}: the certificate cannot be used ({err.strerror or err}); give PEM files of a certificate "
            "and its key, without a password"
        ) from err
    return context


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_CONNECTIONS
        )
    except (OSError, OverflowError) as err:
        raise UnavailableError(
            f"cannot listen on {host}, port {port}: {getattr(err, 'strerror', None) or err}; choose another with "
            "--listen and --port"
        ) from err
