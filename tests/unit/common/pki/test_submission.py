"""A job file under its operator's signature: what proves it, and all that does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kernfed.errors import IdentityError, SubmissionError
from kernfed.pki.authority import Authority
from kernfed.pki.folder import key_sha256
from kernfed.pki.identity import Identity, Role
from kernfed.pki.submission import MAX_STATEMENT_BYTES, SIGNED_AHEAD, prove, sha256_of, sign_job, signed_job_id
from kernfed.v1 import task_pb2
from kernfed_testing.identities import Identities, make_identities

TEXT = 'name = "demo"\n[method]\nname = "probe"\n'
NOW = datetime.now(UTC) + timedelta(minutes=50)
"""Ahead of the clock, since certificates are made when the first test runs, which may be long after this line."""


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return make_identities(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def ann(ids: Identities) -> Identity:
    return Identity.load(ids.operator)


def test_proves_operator_and_text(ids: Identities, ann: Identity) -> None:
    """A submission proves who signed it and when; each signature is another one, with an id of its own."""
    once, again = sign_job(TEXT, ann, NOW), sign_job(TEXT, ann, NOW)
    signed = prove(once, TEXT, ids.pki.authority.certificate, "hearts", NOW)
    assert (signed.operator, signed.serial, signed.signed_at) == ("ann", ann.serial, NOW)
    key = load_pem_private_key(ann.key_pem, None).public_key()
    assert isinstance(key, EllipticCurvePublicKey)
    assert signed.key_sha256 == key_sha256(key)
    assert signed.sha256 == sha256_of(once) != sha256_of(again)
    assert signed_job_id("demo", signed.sha256) != signed_job_id("demo", sha256_of(again))
    assert signed_job_id("demo", signed.sha256) == signed_job_id("demo", sha256_of(once))


def test_operators_alone_sign(ids: Identities) -> None:
    """A client's key signs no job, and what it signs by other means proves nothing."""
    client = Identity.load(ids.make(Role.CLIENT, "site"))
    with pytest.raises(IdentityError, match="operators alone sign jobs"):
        sign_job(TEXT, client, NOW)


def _other_text(good: task_pb2.Submission, _ann: Identity, _ids: Identities) -> tuple[task_pb2.Submission, str]:
    return good, TEXT + "seed = 1\n"


def _other_statement(good: task_pb2.Submission, ann: Identity, _ids: Identities) -> tuple[task_pb2.Submission, str]:
    other = sign_job(TEXT, ann, NOW)
    return task_pb2.Submission(
        statement=other.statement, signature=good.signature, certificate_pem=ann.certificate_pem
    ), TEXT


def _other_operator(good: task_pb2.Submission, _ann: Identity, ids: Identities) -> tuple[task_pb2.Submission, str]:
    bob = Identity.load(ids.make(Role.OPERATOR, "bob"))
    return task_pb2.Submission(
        statement=good.statement, signature=good.signature, certificate_pem=bob.certificate_pem
    ), TEXT


def _client(good: task_pb2.Submission, _ann: Identity, ids: Identities) -> tuple[task_pb2.Submission, str]:
    client = Identity.load(ids.make(Role.CLIENT, "thief"))
    return task_pb2.Submission(
        statement=good.statement, signature=good.signature, certificate_pem=client.certificate_pem
    ), TEXT


def _other_ca(_good: task_pb2.Submission, _ann: Identity, ids: Identities) -> tuple[task_pb2.Submission, str]:
    return sign_job(TEXT, Identity.load(make_identities(ids.root / "twin").operator), NOW), TEXT


def _expired(_good: task_pb2.Submission, _ann: Identity, ids: Identities) -> tuple[task_pb2.Submission, str]:
    old = Identity.load(ids.make(Role.OPERATOR, "old", lifetime=timedelta(days=-1)), check_dates=False)
    return sign_job(TEXT, old, NOW), TEXT


def _too_far_ahead(_good: task_pb2.Submission, ann: Identity, _ids: Identities) -> tuple[task_pb2.Submission, str]:
    return sign_job(TEXT, ann, NOW + SIGNED_AHEAD + timedelta(minutes=1)), TEXT


def _no_certificate(good: task_pb2.Submission, _ann: Identity, _ids: Identities) -> tuple[task_pb2.Submission, str]:
    return task_pb2.Submission(statement=good.statement, signature=good.signature, certificate_pem=b"none"), TEXT


def _too_long(good: task_pb2.Submission, ann: Identity, _ids: Identities) -> tuple[task_pb2.Submission, str]:
    long = b"x" * (MAX_STATEMENT_BYTES + 1)
    return task_pb2.Submission(statement=long, signature=good.signature, certificate_pem=ann.certificate_pem), TEXT


def _empty(_good: task_pb2.Submission, ann: Identity, _ids: Identities) -> tuple[task_pb2.Submission, str]:
    return task_pb2.Submission(certificate_pem=ann.certificate_pem), TEXT


Wrong = Callable[[task_pb2.Submission, Identity, Identities], tuple[task_pb2.Submission, str]]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (_other_text, "not the one that operator/ann signed"),
        (_other_statement, "signature of operator/ann does not fit"),
        (_other_operator, "signature of operator/bob does not fit"),
        (_client, "signed by client/thief"),
        (_other_ca, "not of this federation's CA"),
        (_expired, "its certificate was valid from"),
        (_too_far_ahead, "set the clock that is wrong"),
        (_no_certificate, "is none"),
        (_too_long, "more than any has"),
        (_empty, "no nonce"),
    ],
)
def test_proves_nothing_else(ids: Identities, ann: Identity, wrong: Wrong, why: str) -> None:
    """Another text, statement, operator, role, CA or time than what was signed is refused, with the reason."""
    submission, text = wrong(sign_job(TEXT, ann, NOW), ann, ids)
    with pytest.raises(SubmissionError, match=why):
        prove(submission, text, ids.pki.authority.certificate, "hearts", NOW)


def test_holds_after_the_certificate_has_ended(ids: Identities, ann: Identity) -> None:
    """A job that was signed in time goes on for as long as it takes."""
    years = NOW + timedelta(days=3000)
    assert prove(sign_job(TEXT, ann, NOW), TEXT, ids.pki.authority.certificate, "hearts", years).operator == "ann"


def test_a_clock_that_is_behind_refuses_nothing(ids: Identities, ann: Identity) -> None:
    """A machine whose clock lags by hours, as by a wrong zone, takes jobs that are signed ahead of its time."""
    late = NOW - timedelta(hours=14)
    assert prove(sign_job(TEXT, ann, NOW), TEXT, ids.pki.authority.certificate, "hearts", late).operator == "ann"


def test_another_federation_under_the_same_ca_name(ids: Identities, ann: Identity) -> None:
    """An operator's word for one federation is not taken in another, whatever CA that one has."""
    other = Authority.create("lungs", NOW)
    with pytest.raises(SubmissionError, match="CA"):
        prove(sign_job(TEXT, ann, NOW), TEXT, other.certificate, "lungs", NOW)
    with pytest.raises(SubmissionError, match="it takes an operator of 'lungs'"):
        prove(sign_job(TEXT, ann, NOW), TEXT, ids.pki.authority.certificate, "lungs", NOW)
