"""Certificates that a TLS server shows, trusted or not, and the hosts that they are good for."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable

from cryptography import x509

from kernfed.wire.proxy import dial


def presented_chain(tls: ssl.SSLSocket) -> list[x509.Certificate]:
    """Certificates that the peer sent, its own first, whether or not they were verified."""
    if hasattr(tls, "get_unverified_chain"):  # public from Python 3.13
        return [x509.load_der_x509_certificate(der) for der in tls.get_unverified_chain()]
    chain = tls._sslobj.get_unverified_chain() or ()  # type: ignore[attr-defined]
    return [x509.load_pem_x509_certificate(certificate.public_bytes().encode()) for certificate in chain]


def fetch_chain(
    host: str, port: int, timeout_s: float = 2.0, *, show: Callable[[ssl.SSLContext], None] = lambda context: None
) -> list[x509.Certificate]:
    """Handshake without verifying anything and return what the server shows.

    Args:
        host: Host name or address.
        port: Port.
        timeout_s: Longest wait for the connection, and for the handshake.
        show: Loads a certificate to show to the server, lest it logs that none came.

    Raises:
        OSError: No connection, no TLS (ssl.SSLError), or no answer in time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    show(context)
    with (
        dial(host, port, timeout_s) as raw,
        context.wrap_socket(raw, server_hostname=host) as tls,
    ):
        return presented_chain(tls)


def server_names(certificate: x509.Certificate) -> list[str]:
    """DNS names and IP addresses that a certificate is good for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(a) for a in names.get_values_for_type(x509.IPAddress)]
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def matches_host(host: str, leaf: x509.Certificate) -> bool:
    """Whether a certificate is good for a host name or IP address."""
    names = server_names(leaf)
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        return host.rstrip(".").lower() in (name.lower() for name in names)
