"""Enrolment at the site: a token becomes a certificate, and the key never leaves the folder that it was made in.

The token's fingerprint decides whom to trust. The server's chain is fetched unverified, the CA with that fingerprint
is picked from it, and the secret is sent only over a second connection that this CA verifies.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import structlog
from cryptography import x509

from kernfed.errors import CertificateError
from kernfed.pki import folder as files
from kernfed.pki.authority import certificate_pem, fingerprint, key_pem, make_csr, signed_by
from kernfed.pki.enrolled import check_issued, site_key
from kernfed.pki.identity import Identity, Role, enrolment_channel_credentials
from kernfed.pki.layer_checks import checks_of_the_way, not_tls
from kernfed.pki.names import Principal
from kernfed.pki.tls_chain import fetch_chain, matches_host, server_names
from kernfed.pki.tokens import Token, decode_token
from kernfed.status import error_from_rpc
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wire.channel import split_address
from kernfed.wire.proxy import channel_options

log = structlog.get_logger(__name__)


async def enrol(token_text: str, folder: Path, *, timeout_s: float = 30.0) -> Identity:
    """Make a key in `folder`, have it certified with a token, and store the identity there.

    An answer that gets lost does no harm: the key stays, and the same token with the same key works again.

    Args:
        token_text: What `kernfed pki token NAME` printed.
        folder: Identity folder to make; must not be enrolled yet.
        timeout_s: Longest wait for the answer.

    Returns:
        The identity.

    Raises:
        TokenError: The token is damaged, unknown, used or out of time.
        IdentityError: The folder is enrolled already.
        CertificateError: The server there is not the coordinator that the token is for.
        UnavailableError: The coordinator cannot be reached.
    """
    token = decode_token(token_text)
    key = await asyncio.to_thread(site_key, folder)
    ca_pem = await asyncio.to_thread(pinned_ca, token)
    request = pb.EnrolRequest(secret=token.secret, client=token.client, csr_pem=make_csr(key, token.client).decode())
    credentials = enrolment_channel_credentials(ca_pem)
    async with grpc.aio.secure_channel(
        token.enrolment, credentials, options=channel_options(token.enrolment)
    ) as channel:
        stub = rpc.EnrolmentServiceStub(channel)
        try:
            answer = await stub.Enrol(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as err:
            raise error_from_rpc(err) from None
    principal = Principal(token.federation, Role.CLIENT, token.client)
    issued = answer.certificate_pem.encode()
    check_issued(issued, key, principal, ca_pem)
    split_address(answer.coordinator)
    about = files.About(principal.federation, principal.role, principal.name, answer.coordinator, token.enrolment)
    await asyncio.to_thread(
        files.write_identity, folder, about, certificate_pem=issued, key_pem=key_pem(key), ca_pem=ca_pem
    )
    log.info("enrolled", principal=str(principal), folder=str(folder))
    return Identity.load(folder, check_dates=False)


def pinned_ca(token: Token) -> bytes:
    """Fetch the CA certificate with the token's fingerprint from the enrolment port. Blocks for a few seconds at most.

    Returns:
        The CA's certificate in PEM.

    Raises:
        CertificateError: The server shows another CA, or a certificate that is not for this address.
        UnavailableError: Nobody answers there.
        WireError: Somebody answers in plain text.
    """
    host, port = split_address(token.enrolment)
    for check in checks_of_the_way(host, port):
        if not (found := check()).ok:
            raise found.to_error()
    try:
        chain = fetch_chain(host, port)
    except OSError as err:
        raise not_tls(host, port, err).to_error() from None
    ca = next((c for c in chain if fingerprint(c) == token.ca_sha256), None)
    if ca is None or not signed_by(chain[0], ca):
        raise _wrong_coordinator(token, chain)
    if not matches_host(host, chain[0]):
        names = ", ".join(server_names(chain[0])) or "no host at all"
        raise CertificateError(
            f"wrong host name: the coordinator's certificate is for {names}, not for {host}: have the operator run "
            f"`kernfed pki renew coordinator --host {host}`, or make a token with `--address` one of these names"
        )
    return certificate_pem(ca)


def _wrong_coordinator(token: Token, chain: list[x509.Certificate]) -> CertificateError:
    shown = ", ".join(f"{fingerprint(c)[:16]}…" for c in chain[1:] or chain[:1]) or "nothing"
    return CertificateError(
        f"{token.enrolment} is not the coordinator that this token is for: its CA has the fingerprint {shown}, "
        f"the token wants {token.ca_sha256[:16]}…: check the address with the operator; if the federation was made "
        f"anew, ask for a new token. The secret was not sent"
    )
