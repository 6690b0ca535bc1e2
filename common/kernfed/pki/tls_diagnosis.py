"""Why a connection to the coordinator fails: own checks, layer by layer, after grpc has said only "unavailable".

In order: our own certificate, DNS, TCP, TLS (the server's certificate), mutual TLS (ours, as the peer sees it),
authorisation (what the coordinator says about our certificate on its enrolment port), and store (whether its database
and disk can be used). Each check is bounded in time; the first that fails ends the list. Over TLS 1.3 a server refuses
a client's certificate only after the client's handshake is complete, so the refusal shows at the first read.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import grpc
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kernfed.errors import (
    CertificateError,
    KernfedError,
    PermissionDeniedError,
    RevokedError,
    UnavailableError,
    WireError,
)
from kernfed.pki.authority import fingerprint, utc_now
from kernfed.pki.identity import Identity, Role, enrolment_channel_credentials
from kernfed.pki.layer_checks import (
    STEP_TIMEOUT_S,
    Finding,
    Layer,
    check_server,
    checks_of_the_way,
    load_pair,
)
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wire.channel import address, split_address
from kernfed.wire.health import STORE
from kernfed.wire.proxy import channel_options, dial
from kernfed.wording import moment

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


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
        *checks_of_the_way(host, port),
        lambda: check_server(host, port, identity, now()),
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
        Layer.IDENTITY, True, f"{identity.principal} of {identity.federation}, valid until {moment(identity.not_after)}"
    )


def _check_mutual(host: str, port: int, identity: Identity, role: Role | None, now: datetime) -> Finding:
    try:
        context = ssl.create_default_context(cadata=identity.ca_pem.decode())
        context.set_alpn_protocols(["h2"])
        load_pair(context, identity)
        with (
            dial(host, port, STEP_TIMEOUT_S) as raw,
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
            f"{address(host, port)} does not answer over TLS ({err.strerror or 'no answer in time'})",
            "see whether the coordinator is overloaded or stopped",
        )
    if identity.enrolment and port == split_address(identity.enrolment)[1]:
        return Finding(
            Layer.MUTUAL_TLS,
            False,
            f"{address(host, port)} is the enrolment port, which asks for no certificate",
            f"dial the coordinator's port, {identity.coordinator}",
            WireError,
        )
    if not first:
        return _refused(identity, role, now, "closed without a word")
    if len(first) < 4 or first[3] != 4:  # the first frame of an HTTP/2 server is SETTINGS, type 4
        return Finding(
            Layer.MUTUAL_TLS,
            False,
            f"{address(host, port)} speaks TLS but not gRPC",
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
    with grpc.secure_channel(identity.enrolment, credentials, options=channel_options(identity.enrolment)) as channel:
        stub = rpc.EnrolmentServiceStub(channel)
        try:
            answer = stub.Diagnose(request, timeout=STEP_TIMEOUT_S)
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
    with grpc.secure_channel(identity.enrolment, credentials, options=channel_options(identity.enrolment)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=STORE), timeout=STEP_TIMEOUT_S)
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


def _ca(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.ca_pem)


def _span(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"
