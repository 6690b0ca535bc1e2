"""A job file under its operator's signature: made at submission, proven at the coordinator and at each client.

A client has the federation's CA. So it can judge by itself whose job it works for, and by what text, whatever the
coordinator says. The proof ends where the CA's key is: whoever holds it can make an operator of any name.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.message import DecodeError

from kernfed.errors import IdentityError, KernfedError, SubmissionError
from kernfed.pki import folder
from kernfed.pki.authority import MAX_PEM_BYTES, serial_of, signed_by
from kernfed.pki.identity import Identity
from kernfed.pki.names import Role, principal_of
from kernfed.v1 import task_pb2
from kernfed.wording import moment

MAX_STATEMENT_BYTES = 1024
KEPT_JOBS, KEPT_BYTES = 256, 32 << 20
"""Submissions, and bytes of them, that a coordinator may take to be still at a client: those used last."""
SIGNED_AHEAD = timedelta(days=1)
"""By so much a signature may be ahead of the clock here: one clock that is wrong stops no federation. Nothing is gained
by a time ahead: it lies within the certificate's validity, and no submission can be run twice."""
_NONCE_BYTES = 16
_PURPOSE = b"kernfed job submission 1\0"
"""Ahead of what is signed, so that the signature is good for nothing else."""
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_NUM_ID_LETTERS = 8
_AGAIN = "submit the job again with `kernfed job submit`"


@dataclass(frozen=True, slots=True)
class Signed:
    """What a submission proves."""

    operator: str
    """Name in the certificate that it is signed by."""
    serial: str
    """Of that certificate, hexadecimal."""
    key_sha256: str
    """Fingerprint of its key."""
    signed_at: datetime
    sha256: bytes
    """Digest of the statement, by which each task names it."""
    job_id: str = ""
    """Job that lay at the coordinator before it was signed; empty: a new one."""

    def id_of(self, name: str) -> str:
        """Id of the one job that is signed by this.

        Args:
            name: Of the job file.
        """
        return self.job_id or signed_job_id(name, self.sha256)


def sign_job(job_toml: str, operator: Identity, now: datetime, job_id: str = "") -> task_pb2.Submission:
    """Sign a job file for the operator's federation; each call makes another submission.

    Args:
        job_toml: Text of the file.
        operator: Who signs.
        now: Time of the signature.
        job_id: Job that lies at the coordinator already, unsigned; empty: a new one.

    Raises:
        IdentityError: The identity is not an operator's.
    """
    if operator.role is not Role.OPERATOR:
        raise IdentityError(f"{operator.folder} is the identity of {operator.principal}; operators alone sign jobs")
    statement = task_pb2.SubmissionStatement(
        federation=operator.federation,
        job_sha256=hashlib.sha256(job_toml.encode()).digest(),
        nonce=os.urandom(_NONCE_BYTES),
        job_id=job_id,
    )
    statement.signed_at.FromDatetime(now)
    signed = statement.SerializeToString()
    key = folder.parse_key(operator.key_pem, operator.folder / folder.KEY)
    return task_pb2.Submission(
        statement=signed,
        signature=key.sign(_PURPOSE + signed, ec.ECDSA(hashes.SHA256())),
        certificate_pem=operator.certificate_pem,
    )


def prove(
    submission: task_pb2.Submission, job_toml: str, ca: x509.Certificate, federation: str, now: datetime
) -> Signed:
    """Check that an operator of a federation signed this text for it.

    The certificate must have been valid when it was signed, which may be long ago: jobs wait, and go on for months.

    Args:
        submission: From a peer.
        job_toml: The job file that it is said to be of.
        ca: The federation's.
        federation: Its name.
        now: The time here; what is signed later than this by more than `SIGNED_AHEAD` is refused.

    Raises:
        SubmissionError: Something does not hold; says what, and what to do.
    """
    statement = _statement(submission)
    certificate = _certificate(submission, ca)
    principal = principal_of(certificate)
    if principal.role is not Role.OPERATOR or principal.federation != federation:
        raise SubmissionError(
            f"the job is signed by {principal} of federation {principal.federation!r}; it takes an operator of "
            f"{federation!r}"
        )
    public_key = certificate.public_key()
    try:
        assert isinstance(public_key, ec.EllipticCurvePublicKey)  # noqa: S101  # `_certificate` looked
        public_key.verify(submission.signature, _PURPOSE + submission.statement, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise SubmissionError(
            f"the signature of {principal} does not fit what it is said to have signed; {_AGAIN}"
        ) from None
    if statement.federation != federation:
        raise SubmissionError(
            f"{principal} signed the job for federation {statement.federation[:64]!r}, and this is {federation!r}"
        )
    if statement.job_sha256 != hashlib.sha256(job_toml.encode()).digest():
        raise SubmissionError(f"the job file is not the one that {principal} signed; {_AGAIN}")
    signed_at = _signed_at(statement)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= signed_at < last:
        raise SubmissionError(
            f"{principal} signed the job on {moment(signed_at)}, and its certificate was valid from {moment(first)} to "
            f"{moment(last)}: renew it (`kernfed pki renew {principal}`) or set that machine's clock, and {_AGAIN}"
        )
    if signed_at > now + SIGNED_AHEAD:
        raise SubmissionError(
            f"{principal} signed the job on {moment(signed_at)}, and it is now {moment(now)}: set the clock that is "
            f"wrong, and {_AGAIN}"
        )
    key = folder.key_sha256(public_key)
    return Signed(principal.name, serial_of(certificate), key, signed_at, sha256_of(submission), statement.job_id)


def sha256_of(submission: task_pb2.Submission) -> bytes:
    """Digest by which tasks name a submission."""
    return hashlib.sha256(submission.statement).digest()


def signed_job_id(name: str, sha256: bytes) -> str:
    """Id of a signed job. It follows from the submission, so that no submission can be run as two jobs.

    Args:
        name: Of the job file.
        sha256: Of the submission.
    """
    return f"{name}-{''.join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in sha256[:_NUM_ID_LETTERS])}"


def _statement(submission: task_pb2.Submission) -> task_pb2.SubmissionStatement:
    if not len(submission.statement) <= MAX_STATEMENT_BYTES:
        raise SubmissionError(f"the signed statement has {len(submission.statement)} bytes, more than any has")
    try:
        statement = task_pb2.SubmissionStatement.FromString(submission.statement)
    except DecodeError:
        raise SubmissionError("the signed statement cannot be read; install matching releases of kernfed") from None
    if len(statement.nonce) < _NONCE_BYTES:
        raise SubmissionError("the signed statement has no nonce, so it would be good for any number of jobs")
    return statement


def _certificate(submission: task_pb2.Submission, ca: x509.Certificate) -> x509.Certificate:
    if len(submission.certificate_pem) > MAX_PEM_BYTES:
        raise SubmissionError(f"the operator's certificate has {len(submission.certificate_pem)} bytes, too many")
    try:
        certificate = folder.parse_certificate(submission.certificate_pem, "the submission")
        principal = principal_of(certificate)
    except KernfedError as err:
        raise SubmissionError(f"the certificate that the job is signed by is none: {err}") from None
    if not signed_by(certificate, ca):
        raise SubmissionError(
            f"the certificate of {principal} that the job is signed by is not of this federation's CA"
        )
    if not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
        raise SubmissionError(f"the certificate of {principal} is for another kind of key than kernfed's")
    return certificate


def _signed_at(statement: task_pb2.SubmissionStatement) -> datetime:
    try:
        return statement.signed_at.ToDatetime(UTC)
    except ValueError:
        raise SubmissionError("the time of the signature is out of range") from None
