"""What the CA signs, and what it ignores in a request."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernfed.errors import CertificateError, ConfigError
from kernfed.pki.authority import Authority, make_csr, new_key, public_key_of_csr, signed_by
from kernfed.pki.names import Principal, Role, principal_of

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("hearts", NOW)


def greedy_csr(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A request that asks to be the coordinator, a CA, and an operator."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")]))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier("spiffe://hearts/operator/ann"), x509.DNSName("localhost")]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=3), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


def test_request_gives_only_its_key(authority: Authority) -> None:
    """Whatever a request asks to be called or allowed, only its public key is used."""
    key = new_key()
    certificate = authority.issue(
        public_key_of_csr(greedy_csr(key)), Principal("hearts", Role.CLIENT, "cleveland"), now=NOW
    )
    assert principal_of(certificate) == Principal("hearts", Role.CLIENT, "cleveland")
    extensions = certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [n.value for n in names] == ["spiffe://hearts/client/cleveland"]
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert certificate.public_key() == key.public_key()
    assert signed_by(certificate, authority.certificate)


def test_dates(authority: Authority) -> None:
    """A certificate begins five minutes early, for slow clocks, and never outlives its CA."""
    principal = Principal("hearts", Role.CLIENT, "cleveland")
    key = new_key().public_key()
    certificate = authority.issue(key, principal, now=NOW)
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + timedelta(days=90)
    long = authority.issue(key, principal, now=NOW, lifetime=timedelta(days=20000))
    assert long.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_coordinator_certificate(authority: Authority) -> None:
    """The coordinator's certificate serves TLS under every host name, IP addresses as such."""
    hosts = ("fed.example.org", "127.0.0.1", "::1")
    certificate = authority.issue(
        new_key().public_key(), Principal("hearts", Role.COORDINATOR, "coordinator"), now=NOW, hosts=hosts
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.org"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_hosts_are_for_the_coordinator_alone(authority: Authority) -> None:
    """No client gets a host name, and no coordinator goes without."""
    key = new_key().public_key()
    with pytest.raises(ConfigError):
        authority.issue(key, Principal("hearts", Role.CLIENT, "a"), now=NOW, hosts=("localhost",))
    with pytest.raises(ConfigError):
        authority.issue(key, Principal("hearts", Role.COORDINATOR, "coordinator"), now=NOW)
    with pytest.raises(ConfigError):
        authority.issue(key, Principal("lungs", Role.CLIENT, "a"), now=NOW)


def test_bad_requests_are_refused() -> None:
    """Garbage, a changed request, a foreign kind of key, and a huge text are each a CertificateError."""
    key = new_key()
    good = make_csr(key, "cleveland")
    other = make_csr(new_key(), "cleveland")
    der_good, der_other = (x509.load_pem_x509_csr(p).public_bytes(Encoding.DER) for p in (good, other))
    # The key of one request under the signature of another.
    foreign_key = x509.load_pem_x509_csr(other).public_key()
    assert isinstance(foreign_key, ec.EllipticCurvePublicKey)
    public, foreign = key.public_key().public_numbers(), foreign_key.public_numbers()
    forged_der = der_good.replace(public.x.to_bytes(32, "big"), foreign.x.to_bytes(32, "big")).replace(
        public.y.to_bytes(32, "big"), foreign.y.to_bytes(32, "big")
    )
    assert forged_der not in (der_good, der_other)
    forged = x509.load_der_x509_csr(forged_der).public_bytes(Encoding.PEM)
    subject = x509.Name([])
    curve = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256())
    )
    rsa_request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(rsa.generate_private_key(65537, 2048), hashes.SHA256())
    )
    bad = [b"", b"hello", forged, curve.public_bytes(Encoding.PEM), rsa_request.public_bytes(Encoding.PEM)]
    for pem in [*bad, good + b" " * 20000]:
        with pytest.raises(CertificateError):
            public_key_of_csr(pem)
    assert public_key_of_csr(good) == key.public_key()


@pytest.mark.parametrize(
    "names",
    [
        [],
        [x509.DNSName("localhost")],
        [x509.UniformResourceIdentifier("https://hearts/client/a")],
        [x509.UniformResourceIdentifier("spiffe://hearts/admin/a")],
        [x509.UniformResourceIdentifier("spiffe://hearts/client/../a")],
        [x509.UniformResourceIdentifier("spiffe:///client/a")],
        [x509.UniformResourceIdentifier(f"spiffe://hearts/client/{n}") for n in "ab"],
    ],
)
def test_certificates_without_one_good_name(authority: Authority, names: list[x509.GeneralName]) -> None:
    """A certificate that does not carry exactly one name of ours stands for nobody, whatever its common name."""
    key = new_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client/a")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    with pytest.raises(CertificateError, match=re.compile("name", re.IGNORECASE)):
        principal_of(builder.sign(authority.key, hashes.SHA256()))
