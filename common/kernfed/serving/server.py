"""The port of a served model: uvicorn, with TLS where a certificate is given, until a signal ends it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import uvicorn

from kernfed.errors import ConfigError
from kernfed.models.estimator import Estimator
from kernfed.serving.app import make_app
from kernfed.serving.connections import configured, listener

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
    tls = None if certificate is None else _tls(certificate, key)
    config = configured(make_app(model, version), tls, stop_s=_STOP_S, keep_alive_s=30)
    what, remedy = f"cannot listen on {host}, port {port}", "choose another with --listen and --port"
    with listener(host, port, what, remedy) as made:
        shown = f"[{host}]" if ":" in host else host
        ready(f"{'https' if certificate else 'http'}://{shown}:{made.getsockname()[1]}")
        uvicorn.Server(config).run([made])


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
