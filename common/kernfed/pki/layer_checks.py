"""The layers on the way to the coordinator below our own certificate: the name, the port, what the server shows."""

from __future__ import annotations

import enum
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kernfed.errors import CertificateError, KernfedError, UnavailableError, WireError
from kernfed.pki.authority import fingerprint, signed_by
from kernfed.pki.identity import Identity, Role
from kernfed.pki.names import principal_of
from kernfed.pki.tls_chain import fetch_chain, matches_host, server_names
from kernfed.wire.channel import address
from kernfed.wire.proxy import Proxy, TunnelError, dial, proxy_of
from kernfed.wording import moment

STEP_TIMEOUT_S = 2.0
"""Longest wait of a check."""


class Layer(enum.StrEnum):
    """Layers that are checked, from the bottom up."""

    IDENTITY = "identity"
    DNS = "dns"
    TCP = "tcp"
    PROXY = "proxy"
    TLS = "tls"
    MUTUAL_TLS = "mutual tls"
    AUTHORISATION = "authorisation"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check."""

    layer: Layer
    ok: bool
    message: str
    remedy: str = ""
    error: type[KernfedError] = field(default=UnavailableError, repr=False)
    """Class of error that a failed check stands for."""

    def to_error(self) -> KernfedError:
        """The error, with the remedy in its text."""
        return self.error(f"{self.message}: {self.remedy}" if self.remedy else self.message)


def check_dns(host: str) -> Finding:
    """Whether a host name resolves, within two seconds."""
    answer: list[str] = []
    fault: list[OSError] = []

    def look_up() -> None:
        try:
            answer.extend(str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except OSError as err:
            fault.append(err)

    thread = threading.Thread(target=look_up, daemon=True)  # getaddrinfo knows no timeout
    thread.start()
    thread.join(STEP_TIMEOUT_S)
    if answer:
        return Finding(Layer.DNS, True, f"{host} is {', '.join(dict.fromkeys(answer))}")
    why = str(fault[0].strerror) if fault else f"no answer within {STEP_TIMEOUT_S:g} s"
    return Finding(
        Layer.DNS, False, f"the name {host!r} cannot be resolved ({why})", "check its spelling and this machine's DNS"
    )


def check_tcp(host: str, port: int, what: str = "the coordinator") -> Finding:
    """Whether a port accepts connections, within two seconds."""
    try:
        socket.create_connection((host, port), STEP_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return Finding(
            Layer.TCP,
            False,
            f"nothing listens on {address(host, port)}",
            f"check that {what} runs and that the port is its own",
        )
    except OSError as err:
        why = err.strerror or f"no answer within {STEP_TIMEOUT_S:g} s"
        return Finding(
            Layer.TCP,
            False,
            f"no connection to {address(host, port)} ({why})",
            "check the network and that a firewall lets this port out",
        )
    return Finding(Layer.TCP, True, f"{address(host, port)} accepts connections")


def checks_of_the_way(host: str, port: int) -> Sequence[Callable[[], Finding]]:
    """The checks below TLS, in order: straight to a port, or by the proxy, which alone then looks the name up.

    Raises:
        ConfigError: The environment names something that is no proxy.
    """
    proxy = proxy_of(address(host, port))
    if proxy is None:
        return (lambda: check_dns(host), lambda: check_tcp(host, port))
    return (
        lambda: check_dns(proxy.host),
        lambda: check_tcp(proxy.host, proxy.port, "the proxy"),
        lambda: _check_tunnel(proxy, host, port),
    )


def _check_tunnel(proxy: Proxy, host: str, port: int) -> Finding:
    try:
        dial(host, port, STEP_TIMEOUT_S).close()
    except TunnelError as err:
        return Finding(Layer.PROXY, False, err.message, err.remedy)
    except OSError as err:
        return Finding(
            Layer.PROXY, False, f"no tunnel by the proxy {proxy} ({err.strerror or 'no answer in time'})", "try again"
        )
    return Finding(Layer.PROXY, True, f"the proxy {proxy} opens a tunnel to {address(host, port)}")


def check_server(host: str, port: int, identity: Identity, now: datetime) -> Finding:
    """Whether the certificate that a port shows is that of our coordinator, for this host and at this time."""
    try:
        chain = fetch_chain(host, port, STEP_TIMEOUT_S, show=lambda context: load_pair(context, identity))
    except OSError as err:
        return not_tls(host, port, err)
    if not chain:
        return _bad_server(f"{address(host, port)} shows no certificate", "check that this is the coordinator's port")
    leaf = chain[0]
    ca = x509.load_pem_x509_certificate(identity.ca_pem)
    if not signed_by(leaf, ca):
        theirs = next((fingerprint(c) for c in chain[1:] if signed_by(leaf, c)), None)
        issuer = (
            f"the CA {theirs[:16]}…" if theirs else f"the CA {leaf.issuer.rfc4514_string()!r}, which it does not show"
        )
        return _bad_server(
            f"unknown issuer: the certificate of {address(host, port)} is from {issuer}; we trust the CA "
            f"{fingerprint(ca)[:16]}… of {identity.federation}",
            "check that the address is that of our coordinator; if the federation got a new CA, enrol again with a new "
            "token; if a proxy opens TLS on the way, have it let this address through",
        )
    if now >= leaf.not_valid_after_utc:
        return _bad_server(
            f"the coordinator's certificate expired on {moment(leaf.not_valid_after_utc)} (it is now {moment(now)} "
            "here)",
            "if this machine's clock is wrong, set it; else its operator runs `kernfed pki renew coordinator`",
        )
    if now < leaf.not_valid_before_utc:
        return _bad_server(
            f"the coordinator's certificate is not valid before {moment(leaf.not_valid_before_utc)} (it is now "
            f"{moment(now)} here)",
            "check this machine's clock, then the coordinator's",
        )
    if not matches_host(host, leaf):
        names = ", ".join(server_names(leaf)) or "no host at all"
        return _bad_server(
            f"wrong host name: the certificate of {address(host, port)} is for {names}, not for {host}",
            f"dial one of these names, or have the operator run `kernfed pki renew coordinator --host {host}`",
        )
    return _check_server_role(host, port, leaf)


def _check_server_role(host: str, port: int, leaf: x509.Certificate) -> Finding:
    try:
        principal = principal_of(leaf)
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (CertificateError, x509.ExtensionNotFound) as err:
        return _bad_server(f"{address(host, port)} shows a certificate without a role ({err})", "check the address")
    if principal.role is not Role.COORDINATOR or ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        return _bad_server(
            f"wrong role: {address(host, port)} shows the certificate of {principal}, which may not act as coordinator",
            "check the address; the coordinator must run with the folder that `kernfed pki init` made for it",
        )
    return Finding(
        Layer.TLS, True, f"certificate of {principal} for {host}, valid until {moment(leaf.not_valid_after_utc)}"
    )


def not_tls(host: str, port: int, err: OSError) -> Finding:
    """Facts about the peer from a failed handshake, in which nothing was verified."""
    reason = getattr(err, "reason", None) or ""
    if isinstance(err, ssl.SSLError) and ("WRONG_VERSION" in reason or "HTTP" in reason or "RECORD" in reason):
        return Finding(
            Layer.TLS,
            False,
            f"{address(host, port)} answers in plain text, not TLS",
            "check the port; a coordinator never speaks plain text, so another program or a proxy answers here",
            WireError,
        )
    if isinstance(err, TimeoutError):
        return Finding(
            Layer.TLS,
            False,
            f"{address(host, port)} accepts the connection but does not speak TLS (silent for {STEP_TIMEOUT_S:g} s)",
            "check that the port is the coordinator's; if it is, the coordinator hangs: see its log",
        )
    return Finding(
        Layer.TLS,
        False,
        f"{address(host, port)} broke off the TLS handshake ({reason or err.strerror or type(err).__name__})",
        "check that the port is the coordinator's; a firewall or proxy may cut TLS on the way",
    )


def _bad_server(message: str, remedy: str) -> Finding:
    return Finding(Layer.TLS, False, message, remedy, CertificateError)


def load_pair(context: ssl.SSLContext, identity: Identity) -> None:
    """Have a context show our certificate.

    The ssl module reads keys from files alone; the pair of `identity` may not be the pair on disk any more.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(identity.key_pem + identity.certificate_pem)
        context.load_cert_chain(path)
