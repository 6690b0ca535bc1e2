"""Addresses, and the gRPC options of both ends, which must fit together: keepalives, window probing, message limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator

from kernfed.errors import ConfigError

KEEPALIVE_INTERVAL_S: Final = 20
"""A silent line is pinged this often, with or without calls, so that firewalls keep it and a dead peer is noticed."""

KEEPALIVE_TIMEOUT_S: Final = 10
"""A ping unanswered for this long ends the connection."""

HANDSHAKE_TIMEOUT_S: Final = 10
"""A connection whose TLS handshake is not over by then is closed by the server."""

MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
"""Largest frame: a payload header of at most 4 MiB with its envelope; fragments are 1 MiB."""

_COMMON: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_S * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Window probing grows buffers to hundreds of megabytes under many large transfers and gains no speed.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (*_COMMON, ("grpc.enable_http_proxy", 0))
"""For a channel straight to a coordinator; `kernfed.wire.proxy` has those of one that may go through a proxy."""

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_COMMON,
    # Half the interval: a client's ping that comes a little early is not an offence.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_INTERVAL_S * 500),
    # Whoever connects and says nothing is shut out soon: each holds a descriptor.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_S * 1000),
    # Of one connection; unset, there is no bound. A client has one session, an operator a few calls.
    ("grpc.max_concurrent_streams", 100),
    # A second coordinator on the same port must fail to start, not share its clients.
    ("grpc.so_reuseport", 0),
)
"""For every server."""

ENROLMENT_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *SERVER_OPTIONS,
    # Anybody can connect here, without a certificate: whoever has what it came for, or does nothing, is shown out.
    ("grpc.max_connection_idle_ms", 15_000),
    ("grpc.max_connection_age_ms", 60_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
)
"""For the port of enrolment."""


def address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int]:
    """Take `host:port` apart.

    Raises:
        ConfigError: It is something else.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{text[:200]!r} is not an address: write host:port, e.g. fed.example.org:8470")
    return host, int(port)


def split_listen(text: str) -> tuple[str, int]:
    """Take the `host:port` of a listener apart; port 0 is one that the system chooses.

    Raises:
        ConfigError: It is something else.
    """
    host, port = text.rpartition(":")[::2]
    return split_address(text) if port != "0" else (split_address(f"{host}:1")[0], 0)


def _as_said(split: Callable[[str], tuple[str, int]]) -> AfterValidator:
    """Refuses what cannot be taken apart as a table is read, so that the refusal names file and key."""

    def check(text: str) -> str:
        try:
            split(text)
        except ConfigError as err:
            raise ValueError(str(err)) from err
        return text

    return AfterValidator(check)


Address = Annotated[str, _as_said(split_address)]
"""A key of a file: host:port."""
ListenAddress = Annotated[str, _as_said(split_listen)]
"""A key of a file: host:port, where port 0 is one that the system chooses."""


def optional_address(listen: str | None, port: int | None, prefix: str, what: str) -> str | None:
    """Where something is served that need not be, by the two keys of a daemon's file; None: nowhere.

    Args:
        listen: Key `listen`, as host:port.
        port: Key `port`, the short form for loopback.
        prefix: Of both keys' names, e.g. `metrics_`.
        what: That is served, e.g. `metrics are`.

    Raises:
        ValueError: Both are given; for validators of the file's table.
    """
    if listen is None:
        return None if port is None else f"127.0.0.1:{port}"
    if port is not None:
        raise ValueError(f"{prefix}listen says where {what} served; leave {prefix}port out")
    return listen
