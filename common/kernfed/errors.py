"""The exception tree of kernfed: one root, six families, leaves with a stable `reason`.

A leaf's message says what happened, where, and what to do next. It never holds a row, a label of a row, or a key. What
crosses the wire and reaches an operator at another institution is `public`: the message, or less where the message
tells of a site's files what is its own business, such as line numbers and names of other columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class KernfedError(Exception):
    """Root of all errors that kernfed raises on purpose.

    Attributes:
        reason: Stable code in SCREAMING_SNAKE_CASE; scripts and peers may rely on it.
        exit_code: Exit status of a command that ends with this error.
        public: The message as it may leave this machine.
    """

    reason: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, public: str | None = None) -> None:
        """Make an error.

        Args:
            message: For whoever sits at this machine.
            public: For others, where that is less.
        """
        super().__init__(message)
        self.public = message if public is None else public


class ConfigError(KernfedError):
    """A job, client or coordinator file is wrong. The message names the file, the key and the remedy."""

    reason = "INVALID_CONFIG"
    exit_code = 3


class DataError(KernfedError):
    """Local data do not fit the job's schema. The message names the file, the column, the row and the remedy."""

    reason = "INVALID_DATA"
    exit_code = 3


class WireError(KernfedError):
    """A message from a peer breaks the protocol."""

    reason = "INVALID_MESSAGE"
    exit_code = 4


class InvalidTensorError(WireError):
    """A tensor has the wrong shape, type or size, or holds NaN or infinity."""

    reason = "INVALID_TENSOR"


class UnknownStepError(WireError):
    """A task names a step that this client does not run."""

    reason = "UNKNOWN_STEP"


class PayloadTooLargeError(WireError):
    """A peer declares or sends more bytes than the limit allows."""

    reason = "PAYLOAD_TOO_LARGE"


class VersionMismatchError(WireError):
    """The peers speak different protocol versions, or a client does not know what a job asks for."""

    reason = "VERSION_MISMATCH"


class AuthError(KernfedError):
    """Identity, certificate, role or policy refuses a call."""

    reason = "UNAUTHENTICATED"
    exit_code = 4


class IdentityError(AuthError):
    """Identity files (certificate, key, CA) are missing, unreadable or do not fit together."""

    reason = "INVALID_IDENTITY"


class CertificateError(AuthError):
    """A certificate is expired, not yet valid, from another CA, or carries the wrong name."""

    reason = "INVALID_CERTIFICATE"


class RevokedError(AuthError):
    """The certificate was revoked by the federation."""

    reason = "REVOKED"


class TokenError(AuthError):
    """An enrolment token is malformed, unknown, used or out of time."""

    reason = "INVALID_TOKEN"


class PermissionDeniedError(AuthError):
    """The caller's role does not allow this call."""

    reason = "PERMISSION_DENIED"


class PolicyError(AuthError):
    """The client's policy forbids what a task asks for; nothing was sent."""

    reason = "REFUSED_BY_POLICY"


class SubmissionError(PolicyError):
    """A job is not what its operator signed, or is not signed where a client asks for it; nothing was sent."""

    reason = "UNPROVEN_JOB"


class ApprovalError(PolicyError):
    """People at the site have not approved the job yet, or pause it; nothing was sent, and the job waits for them."""

    reason = "AWAITS_APPROVAL"


class SiteRefusedError(PolicyError):
    """People at the site refused the job; nothing was sent."""

    reason = "REFUSED_BY_SITE"


class AlreadyConnectedError(AuthError):
    """Another daemon holds an active session under the same identity."""

    reason = "ALREADY_CONNECTED"


class UnavailableError(KernfedError):
    """The peer cannot be reached, or is shutting down."""

    reason = "UNAVAILABLE"
    exit_code = 4


class DiskFullError(UnavailableError):
    """A disk, here or at the database, has no space left. A job waits for space as long as it may."""

    reason = "DISK_FULL"


class BusyError(KernfedError):
    """A limit on work or bytes in flight is reached; try again later."""

    reason = "RESOURCE_EXHAUSTED"
    exit_code = 4


class JobError(KernfedError):
    """A job, or one of its rounds, failed."""

    reason = "JOB_FAILED"
    exit_code = 5


class UnknownJobError(JobError):
    """No such job at this coordinator."""

    reason = "UNKNOWN_JOB"


class UnknownArtifactError(JobError):
    """The job left no artifact of this name."""

    reason = "UNKNOWN_ARTIFACT"


class UnknownClientError(JobError):
    """A job names a client that this federation does not know."""

    reason = "UNKNOWN_CLIENT"


class QuorumNotMetError(JobError):
    """Fewer clients answered than the job's quorum, for as long as the job was willing to wait.

    Attributes:
        faults: Clients that answered with an error, each with its reason.
    """

    reason = "QUORUM_NOT_MET"

    def __init__(
        self, message: str = "", *, public: str | None = None, faults: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, public=public)
        self.faults = dict(faults or {})


class JobCancelledError(JobError):
    """The job was cancelled."""

    reason = "JOB_CANCELLED"


class JobStateMissingError(JobError):
    """A client holds no prepared data for this job, or was set up otherwise; the coordinator prepares it again."""

    reason = "JOB_STATE_MISSING"


class InvalidReplyError(JobError):
    """A client's reply is well-formed but contradicts what the client said before."""

    reason = "INVALID_REPLY"


class StepFailedError(JobError):
    """A client could not compute a step; the trace is in that client's own log."""

    reason = "STEP_FAILED"


class PluginError(JobError):
    """A package from outside raised an error of its own; the trace is in the log of the process that ran it."""

    reason = "PLUGIN_FAILED"


class SecureSumError(JobError):
    """A secure sum was asked otherwise than it may be, or its masks could not be taken away; no term was seen."""

    reason = "SECURE_SUM_FAILED"


class NumericalError(KernfedError):
    """A computation cannot give a meaningful number."""

    reason = "NUMERICAL"
    exit_code = 5


class OutOfRangeError(NumericalError):
    """Numbers are beyond the bound of a secure sum; nothing was sent."""

    reason = "OUT_OF_RANGE"


class NotPositiveDefiniteError(NumericalError):
    """A matrix that must be positive definite is not. The message states its condition."""

    reason = "NOT_POSITIVE_DEFINITE"


class NotConvergedError(NumericalError):
    """An iterative solver stopped before its tolerance."""

    reason = "NOT_CONVERGED"


class DivergedError(NumericalError):
    """An iteration moves away from its solution; the message holds the diagnosis."""

    reason = "DIVERGED"


def _leaves(cls: type[KernfedError]) -> list[type[KernfedError]]:
    found = [cls]
    for sub in cls.__subclasses__():
        found.extend(_leaves(sub))
    return found


def error_from_reason(reason: str, message: str) -> KernfedError:
    """Rebuild an error that a peer reported, as the same class where the reason is known."""
    for cls in _leaves(KernfedError):
        if cls.reason == reason:
            return cls(message)
    return KernfedError(message)
