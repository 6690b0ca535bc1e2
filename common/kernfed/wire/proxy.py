"""HTTP proxies on the way to a coordinator: which one there is, and the tunnel that it opens (CONNECT, RFC 9110).

TLS goes through the tunnel from end to end: the proxy learns the coordinator's name and the amount of bytes. One rule
holds for gRPC's channels and for plain sockets: the proxy that a daemon's file names, else that of the environment
(`https_proxy`, `HTTPS_PROXY`), but for hosts in `no_proxy` and for this machine itself.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import socket
import time
import urllib.parse
from dataclasses import dataclass, field

from kernfed.errors import ConfigError
from kernfed.wire.channel import CHANNEL_OPTIONS, address, split_address

MAX_HEAD_BYTES = 16 << 10
"""Of a proxy's answer before the tunnel."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, and who we are to it."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Without the password."""
        return address(self.host, self.port)

    @property
    def url(self) -> str:
        """With user and password, as gRPC takes it."""
        quoted = ":".join(urllib.parse.quote(part, safe="") for part in (self.user, self.password))
        return f"http://{quoted}@{self}" if self.user else f"http://{self}"


class TunnelError(OSError):
    """A proxy opens no tunnel."""

    def __init__(self, message: str, remedy: str) -> None:
        """Of one fault.

        Args:
            message: Who answered what.
            remedy: What to do.
        """
        super().__init__(f"{message}: {remedy}")
        self.message, self.remedy = message, remedy


_of_file: Proxy | None = None


def use(proxy: Proxy | None) -> None:
    """Take this proxy in place of the environment's, in all of this process; None: the environment's."""
    global _of_file
    _of_file = proxy


def parse_proxy(text: str, where: str) -> Proxy:
    """A proxy from its URL; without a scheme it is http, without a port 3128.

    Args:
        text: `http://[user:password@]host[:port]`.
        where: Who says so, for errors.

    Raises:
        ConfigError: It is something else, or a kind of proxy that opens no HTTP tunnel.
    """
    whole = text.strip() if "://" in text else f"http://{text.strip()}"
    shown = re.sub(r"//[^/@]*@", "//…@", whole)[:200]
    try:
        parts = urllib.parse.urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urllib.parse.urlsplit(""), None, None
    if parts.scheme not in ("http", "") or not host or re.search(r"[\s\x00-\x1f]", whole):
        kind = f"a proxy of kind {parts.scheme}" if host else "no proxy's address"
        raise ConfigError(f"{where}: {shown!r} is {kind}; write http://HOST:PORT of a proxy that allows CONNECT")
    user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    return Proxy(host, port or 3128, user, password)


def proxy_of(target: str) -> Proxy | None:
    """The proxy on the way to `host:port`; None: there is none.

    Raises:
        ConfigError: The environment names something that is no proxy.
    """
    host, _ = split_address(target)
    if _is_here(host) or (_of_file is None and not _in_environment("https_proxy")):
        return None
    import urllib.request  # noqa: PLC0415  # most networks have no proxy, and it takes a while to load

    if urllib.request.proxy_bypass(host):
        return None
    if _of_file is not None:
        return _of_file
    named = urllib.request.getproxies_environment().get("https")
    return parse_proxy(named, "https_proxy of the environment") if named else None


def _in_environment(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(name.upper()))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def channel_options(target: str) -> tuple[tuple[str, int | str], ...]:
    """Options of a gRPC channel to `host:port`.

    Raises:
        ConfigError: The environment names something that is no proxy.
    """
    proxy = proxy_of(target)
    if proxy is None:
        return CHANNEL_OPTIONS
    direct = ("grpc.enable_http_proxy", 0)
    return (*(option for option in CHANNEL_OPTIONS if option != direct), ("grpc.http_proxy", proxy.url))


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to a port, through the proxy if there is one.

    Args:
        host: Name or address; behind a proxy, the proxy looks it up.
        port: Port.
        timeout_s: Longest wait for the connection, and as much for the tunnel; the socket keeps it.

    Raises:
        OSError: No connection; TunnelError: the proxy opens none.
    """
    proxy = proxy_of(address(host, port))
    if proxy is None:
        return socket.create_connection((host, port), timeout_s)
    made = socket.create_connection((proxy.host, proxy.port), timeout_s)
    try:
        _open_tunnel(made, proxy, address(host, port), timeout_s)
    except BaseException:
        made.close()
        raise
    return made


def _open_tunnel(made: socket.socket, proxy: Proxy, target: str, timeout_s: float) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", "User-Agent: kernfed"]
    if proxy.user:
        told = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {told}")
    silent = TunnelError(
        f"the proxy {proxy} is silent on CONNECT {target} ({timeout_s:g} s)",
        "check that this is an HTTP proxy, and that it reaches the coordinator",
    )
    try:
        made.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = _head(made, time.monotonic() + timeout_s)
    except TimeoutError:
        raise silent from None
    except ConnectionError:
        head = b""
    _judge(head, proxy, target)


def _head(made: socket.socket, deadline: float) -> bytes:
    """The head of an answer, and no byte of what follows it; what there is where the line ends or it is too long."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        made.settimeout(left)
        byte = made.recv(1)  # what comes behind the head is the coordinator's
        if not byte:
            break
        head += byte
    made.settimeout(max(deadline - time.monotonic(), 0.1))
    return bytes(head)


_ASK = "ask who runs it to let the coordinator's address and port through"


def _judge(head: bytes, proxy: Proxy, target: str) -> None:
    """Whether a head opens the tunnel.

    Raises:
        TunnelError: It does not, with the reason and the remedy.
    """
    status = re.match(rb"HTTP/1\.[01] (\d{3})\b[^\r\n]*\r?\n", head)
    if not head:
        raise TunnelError(f"the proxy {proxy} closed the connection on CONNECT {target}", _ASK)
    code = int(status[1]) if status else 0
    if not code or (200 <= code < 300 and not head.endswith(b"\r\n\r\n")):
        raise TunnelError(
            f"{proxy} does not answer as an HTTP proxy",
            "check the proxy's host and port; a proxy that itself asks for TLS, or of kind SOCKS, cannot be used",
        )
    if 200 <= code < 300:
        return
    if code == 407:
        scheme = re.findall(rb"(?im)^proxy-authenticate:[ \t]*([\w-]{1,40})", head)
        offered = ", ".join(dict.fromkeys(name.decode() for name in scheme)) or "none"
        if proxy.user:
            said = f"the proxy {proxy} refuses the name and password that we gave (it offers {offered})"
        else:
            said = f"the proxy {proxy} asks for a name and a password (it offers {offered})"
        raise TunnelError(said, "give them in the client file's [network], or in https_proxy; Basic is the one kind")
    if 300 <= code < 400:
        raise TunnelError(
            f"the proxy {proxy} answers CONNECT {target} with a redirection ({code})",
            "it wants a person to sign in on a web page; " + _ASK,
        )
    if code in (502, 503, 504):
        raise TunnelError(
            f"the proxy {proxy} does not reach {target} (it answers {code})",
            "check the coordinator's name and port, and that it runs; " + _ASK,
        )
    raise TunnelError(f"the proxy {proxy} refuses CONNECT {target} (it answers {code})", _ASK)
