"""Why a connection to the coordinator fails: own checks, layer by layer, after grpc has said only "unavailable".

In order: our own certificate, DNS, TCP, TLS (the server's certificate), mutual TLS (ours, as the peer sees it),
authorisation (what the coordinator says about our certificate on its enrolment port), and store (whether its database
and disk can be used). Each check is bounded in time; the first that fails ends the list. Over TLS 1.3 a server refuses
a client's certificate only after the client's handshake is complete, so the refusal shows at the first read.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kernfed.errors import (
    CertificateError,
    KernfedError,
    PermissionDeniedError,
    RevokedError,
    UnavailableError,
    WireError,
)
from kernfed.pki.authority import fingerprint, signed_by, utc_now
from kernfed.pki.identity import Identity, Role, enrolment_channel_credentials
from kernfed.pki.names import principal_of
from kernfed.pki.tls_chain import fetch_chain, matches_host, server_names
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wire.channel import CHANNEL_OPTIONS, split_address
from kernfed.wire.health import STORE

_STEP_TIMEOUT_S = 2.0
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Layer(enum.StrEnum):
    """Layers that are checked, from the bottom up."""

    IDENTITY = "identity"
    DNS = "dns"
    TCP = "tcp"
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


def diagnose(
    address: str,
    identity: Identity,
    *,
    role: Role | None = None,
    now: Callable[[], datetime] = utc_now,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """Check a connection layer by layer, up to the first layer that fails.

    Blocks for at most about ten seconds; run it in a thread from asyncio.

    Args:
        address: `host:port` of the coordinator.
        identity: Ours, loaded with `check_dates=False` so that its dates are a finding too.
        role: Role that the calls need; None: any.
        now: Clock.
        on_finding: Told each finding as soon as it is there.

    Returns:
        Findings in order; only the last can have failed.

    Raises:
        ConfigError: `address` is not `host:port`.
    """
    host, port = split_address(address)
    checks: Sequence[Callable[[], Finding]] = (
        lambda: _check_identity(identity, role, now()),
        lambda: check_dns(host),
        lambda: check_tcp(host, port),
        lambda: _check_server(host, port, identity, now()),
        lambda: _check_mutual(host, port, identity, role, now()),
        lambda: _check_verdict(identity, role, now()),
        lambda: _check_store(identity),
    )
    findings = []
    for check in checks:
        finding = check()
        findings.append(finding)
        on_finding(finding)
        if not finding.ok:
            break
    return findings


def diagnose_failure(address: str, identity: Identity, *, role: Role | None = None) -> KernfedError:
    """The error that explains why a connection to `address` failed, with the remedy in its text.

    Blocks like `diagnose`. UnavailableError stands for what may pass by itself; every other class needs a person.
    """
    try:
        last = diagnose(address, identity, role=role)[-1]
    except KernfedError as err:
        return err
    if last.ok:
        return UnavailableError(
            f"{address} did not answer the call, yet DNS, TCP, TLS and our certificate are in order: try again; if it "
            f"stays so, see the coordinator's log"
        )
    return last.to_error()


def _check_identity(identity: Identity, role: Role | None, now: datetime) -> Finding:
    try:
        identity.check_dates(now)
    except CertificateError as err:
        message, _, remedy = str(err).partition("): ")
        return Finding(Layer.IDENTITY, False, f"{message})", remedy, CertificateError)
    if role is not None and identity.role is not role:
        return Finding(
            Layer.IDENTITY,
            False,
            f"{identity.folder} is the identity of {identity.principal}, and this needs the role {role}",
            f"give the identity folder of one: --identity DIR with the role {role}",
            PermissionDeniedError,
        )
    return Finding(
        Layer.IDENTITY, True, f"{identity.principal} of {identity.federation}, valid until {_date(identity.not_after)}"
    )


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
    thread.join(_STEP_TIMEOUT_S)
    if answer:
        return Finding(Layer.DNS, True, f"{host} is {', '.join(dict.fromkeys(answer))}")
    why = str(fault[0].strerror) if fault else f"no answer within {_STEP_TIMEOUT_S:g} s"
    return Finding(
        Layer.DNS, False, f"the name {host!r} cannot be resolved ({why})", "check its spelling and this machine's DNS"
    )


def check_tcp(host: str, port: int) -> Finding:
    """Whether a port accepts connections, within two seconds."""
    try:
        socket.create_connection((host, port), _STEP_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return Finding(
            Layer.TCP,
            False,
            f"nothing listens on {host}:{port}",
            "check that the coordinator runs and that the port is its own",
        )
    except OSError as err:
        why = err.strerror or f"no answer within {_STEP_TIMEOUT_S:g} s"
        return Finding(
            Layer.TCP,
            False,
            f"no connection to {host}:{port} ({why})",
            "check the network and that a firewall lets this port out",
        )
    return Finding(Layer.TCP, True, f"{host}:{port} accepts connections")


def _check_server(host: str, port: int, identity: Identity, now: datetime) -> Finding:
    try:
        chain = fetch_chain(host, port, _STEP_TIMEOUT_S, show=lambda context: _load_pair(context, identity))
    except OSError as err:
        return not_tls(host, port, err)
    if not chain:
        return _bad_server(f"{host}:{port} shows no certificate", "check that this is the coordinator's port")
    leaf = chain[0]
    ca = x509.load_pem_x509_certificate(identity.ca_pem)
    if not signed_by(leaf, ca):
        theirs = next((fingerprint(c) for c in chain[1:] if signed_by(leaf, c)), None)
        issuer = (
            f"the CA {theirs[:16]}…" if theirs else f"the CA {leaf.issuer.rfc4514_string()!r}, which it does not show"
        )
        return _bad_server(
            f"unknown issuer: the certificate of {host}:{port} is from {issuer}; we trust the CA "
            f"{fingerprint(ca)[:16]}… of {identity.federation}",
            "check that the address is that of our coordinator; if the federation got a new CA, enrol again with a new "
            "token; if a proxy opens TLS on the way, have it let this address through",
        )
    if now >= leaf.not_valid_after_utc:
        return _bad_server(
            f"the coordinator's certificate expired on {_date(leaf.not_valid_after_utc)} (it is now {_date(now)} here)",
            "if this machine's clock is wrong, set it; else its operator runs `kernfed pki renew coordinator`",
        )
    if now < leaf.not_valid_before_utc:
        return _bad_server(
            f"the coordinator's certificate is not valid before {_date(leaf.not_valid_before_utc)} (it is now "
            f"{_date(now)} here)",
            "check this machine's clock, then the coordinator's",
        )
    if not matches_host(host, leaf):
        names = ", ".join(server_names(leaf)) or "no host at all"
        return _bad_server(
            f"wrong host name: the certificate of {host}:{port} is for {names}, not for {host}",
            f"dial one of these names, or have the operator run `kernfed pki renew coordinator --host {host}`",
        )
    return _check_server_role(host, port, leaf)


def _check_server_role(host: str, port: int, leaf: x509.Certificate) -> Finding:
    try:
        principal = principal_of(leaf)
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (CertificateError, x509.ExtensionNotFound) as err:
        return _bad_server(f"{host}:{port} shows a certificate without a role ({err})", "check the address")
    if principal.role is not Role.COORDINATOR or ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        return _bad_server(
            f"wrong role: {host}:{port} shows the certificate of {principal}, which may not act as coordinator",
            "check the address; the coordinator must run with the folder that `kernfed pki init` made for it",
        )
    return Finding(
        Layer.TLS, True, f"certificate of {principal} for {host}, valid until {_date(leaf.not_valid_after_utc)}"
    )


def _check_mutual(host: str, port: int, identity: Identity, role: Role | None, now: datetime) -> Finding:
    try:
        context = ssl.create_default_context(cadata=identity.ca_pem.decode())
        context.set_alpn_protocols(["h2"])
        _load_pair(context, identity)
        with (
            socket.create_connection((host, port), _STEP_TIMEOUT_S) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                tls.sendall(_HTTP2_PREFACE)
            first = tls.recv(16)
    except (ssl.SSLError, ConnectionError) as err:
        return _refused(identity, role, now, getattr(err, "reason", None) or str(err.strerror))
    except OSError as err:
        return Finding(
            Layer.MUTUAL_TLS,
            False,
            f"{host}:{port} does not answer over TLS ({err.strerror or 'no answer in time'})",
            "see whether the coordinator is overloaded or stopped",
        )
    if identity.enrolment and port == split_address(identity.enrolment)[1]:
        return Finding(
            Layer.MUTUAL_TLS,
            False,
            f"{host}:{port} is the enrolment port, which asks for no certificate",
            f"dial the coordinator's port, {identity.coordinator}",
            WireError,
        )
    if not first:
        return _refused(identity, role, now, "closed without a word")
    if len(first) < 4 or first[3] != 4:  # the first frame of an HTTP/2 server is SETTINGS, type 4
        return Finding(
            Layer.MUTUAL_TLS,
            False,
            f"{host}:{port} speaks TLS but not gRPC",
            "check that the port is the coordinator's",
            WireError,
        )
    return Finding(Layer.MUTUAL_TLS, True, "the coordinator accepts our certificate in the handshake")


def _refused(identity: Identity, role: Role | None, now: datetime, why: str) -> Finding:
    """Our handshake was refused; the coordinator's enrolment port knows why."""
    verdict = _check_verdict(identity, role, now)
    if not verdict.ok:
        return Finding(
            Layer.MUTUAL_TLS,
            False,
            f"the coordinator refused our certificate; it says: {verdict.message}",
            verdict.remedy,
            verdict.error,
        )
    return Finding(
        Layer.MUTUAL_TLS,
        False,
        f"the coordinator refused our certificate of {identity.principal} in the handshake ({why}); {verdict.message}",
        f"compare fingerprints with the operator: our CA is {fingerprint(_ca(identity))[:16]}…, our certificate "
        f"{identity.serial[:16]}…",
        CertificateError,
    )


def _check_verdict(identity: Identity, role: Role | None, now: datetime) -> Finding:
    """Ask the enrolment port what the coordinator thinks of our certificate."""
    if not identity.enrolment:
        return Finding(Layer.AUTHORISATION, True, "not asked: our identity names no enrolment port")
    request = pb.DiagnoseRequest(certificate_pem=identity.certificate_pem.decode(), role=role or "")
    credentials = enrolment_channel_credentials(identity.ca_pem)
    with grpc.secure_channel(identity.enrolment, credentials, options=CHANNEL_OPTIONS) as channel:
        stub = rpc.EnrolmentServiceStub(channel)
        try:
            answer = stub.Diagnose(request, timeout=_STEP_TIMEOUT_S)
        except grpc.RpcError:
            return Finding(
                Layer.AUTHORISATION, True, f"the enrolment port {identity.enrolment} could not be asked about it"
            )
    if answer.verdict == pb.VERDICT_VALID:
        return Finding(Layer.AUTHORISATION, True, f"the coordinator knows {identity.principal} and admits it")
    error = {pb.VERDICT_REVOKED: RevokedError, pb.VERDICT_WRONG_ROLE: PermissionDeniedError}.get(
        answer.verdict, CertificateError
    )
    message, _, remedy = answer.message.partition(": ")
    skew = abs(answer.now.ToDatetime(UTC) - now)
    dated = answer.verdict in (pb.VERDICT_EXPIRED, pb.VERDICT_NOT_YET_VALID)
    if dated and skew > timedelta(minutes=2):
        message += f" (its clock and ours differ by {_span(skew)})"
        remedy = f"set this machine's clock or the coordinator's; {remedy}"
    return Finding(Layer.AUTHORISATION, False, message, remedy, error)


def _check_store(identity: Identity) -> Finding:
    """Ask the enrolment port whether the coordinator's database and disk can be used."""
    if not identity.enrolment:
        return Finding(Layer.STORE, True, "not asked: our identity names no enrolment port")
    credentials = enrolment_channel_credentials(identity.ca_pem)
    with grpc.secure_channel(identity.enrolment, credentials, options=CHANNEL_OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=STORE), timeout=_STEP_TIMEOUT_S)
        except grpc.RpcError:
            return Finding(Layer.STORE, True, "the coordinator does not tell; an earlier release cannot")
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return Finding(Layer.STORE, True, "the coordinator's database and disk can be used")
    return Finding(
        Layer.STORE,
        False,
        "the coordinator lives, but its database or disk cannot be used, so jobs wait and commands fail",
        "its operator finds the cause in its log, and `kernfed-coordinator health --ready` tells when it is over",
    )


def not_tls(host: str, port: int, err: OSError) -> Finding:
    """Facts about the peer from a failed handshake, in which nothing was verified."""
    reason = getattr(err, "reason", None) or ""
    if isinstance(err, ssl.SSLError) and ("WRONG_VERSION" in reason or "HTTP" in reason or "RECORD" in reason):
        return Finding(
            Layer.TLS,
            False,
            f"{host}:{port} answers in plain text, not TLS",
            "check the port; a coordinator never speaks plain text, so another program or a proxy answers here",
            WireError,
        )
    if isinstance(err, TimeoutError):
        return Finding(
            Layer.TLS,
            False,
            f"{host}:{port} accepts the connection but does not speak TLS (silent for {_STEP_TIMEOUT_S:g} s)",
            "check that the port is the coordinator's; if it is, the coordinator hangs: see its log",
        )
    return Finding(
        Layer.TLS,
        False,
        f"{host}:{port} broke off the TLS handshake ({reason or err.strerror or type(err).__name__})",
        "check that the port is the coordinator's; a firewall or proxy may cut TLS on the way",
    )


def _bad_server(message: str, remedy: str) -> Finding:
    return Finding(Layer.TLS, False, message, remedy, CertificateError)


def _load_pair(context: ssl.SSLContext, identity: Identity) -> None:
    """The ssl module reads keys from files alone; the pair of `identity` may not be the pair on disk any more."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(identity.key_pem + identity.certificate_pem)
        context.load_cert_chain(path)


def _ca(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.ca_pem)


def _span(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"


def _date(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
