"""The information that may leave this site: the [policy] table of the client file, asked before a step runs."""

from __future__ import annotations

from typing import Any

from kernfed.errors import PolicyError, SubmissionError
from kernfed.federation.messages.base import Kind, Request, fields_of
from kernfed.federation.messages.data import DescribeDataRequest
from kernfed.federation.messages.sums import MaskedRequest, seen_in_the_clear
from kernfed.jobs.client_file import PolicySection
from kernfed.jobs.held_to import asked_of
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.plugins_used import plugins_behind, refuse_strange, refuse_unnamed
from kernfed.methods.registry import steps_of
from kernfed.pki.submission import Signed
from kernfed.wording import listed


class Policy:
    """Decides over requests. A refusal names the key of the client file that would allow it."""

    def __init__(self, section: PolicySection) -> None:
        self._section = section
        self._allowed = frozenset(section.allow)

    @property
    def needs_fresh_list(self) -> bool:
        """Whether signed jobs are refused while it is not known who was revoked lately."""
        return self._section.stale_revocations == "refuse"

    def check_signed(self, signed: Signed | None, unread: str = "", stale: str = "") -> None:
        """Refuse a job that is not signed, where the site goes by operators or methods; or signed by another key.

        Args:
            signed: What is proven of it; None: nothing.
            unread: Why the signed job file cannot be read here; empty: it can.
            stale: Why it is not known who was revoked lately; empty: it is.

        Raises:
            SubmissionError: Names the remedies.
        """
        section = self._section
        keys = {} if signed is None else section.operator_keys
        if signed is not None and signed.key_sha256 not in keys.get(signed.operator, [signed.key_sha256]):
            raise SubmissionError(
                f"the job is signed by operator {signed.operator} with the key {signed.key_sha256}, which "
                "policy.operator_keys does not name; ask the operator whether it is theirs (`kernfed pki key`), by "
                "another way than this federation"
            )
        if signed is not None and stale and self.needs_fresh_list:
            raise SubmissionError(f'{stale}, or let this client\'s administrator set policy.stale_revocations = "warn"')
        if section.unsigned == "allow" or (section.unsigned is None and not section.goes_by_names):
            return
        key = 'unsigned = "allow"' if section.approve == "all" else 'approve = "all"'
        allowed = f"or let this client's administrator set policy.{key}"
        if signed is None:
            raise SubmissionError(
                "the job is not signed by its operator, and this client runs signed jobs alone; its operator can sign "
                f"it with `kernfed job sign`, or submit it with this release's `kernfed job submit`, {allowed}"
            )
        if unread:
            raise SubmissionError(
                f"this client cannot read what the job's operator signed; install the same release of kernfed at both "
                f"ends, {allowed}: {unread}"
            )

    def check_job(self, job: JobFile, operator: str, client: str) -> None:
        """Judge a whole job by its file, before anything of it is answered.

        Args:
            job: The file, proven to be the operator's.
            operator: Who submitted it.
            client: This client's name.

        Raises:
            PolicyError: Names what is forbidden and the key that allows it.
        """
        named = job.cohort.clients
        if named is not None and client not in named:
            raise PolicyError(f"the job is for {listed(named)}, and not for this client; add it to cohort.clients")
        self.check(DescribeDataRequest, operator, job.method.name, None, None if named is None else len(named))
        batch = getattr(job.method, "batch_size", None)
        for request in asked_of(job):
            self._check_kinds(request)
            plain = request.asks if issubclass(request, MaskedRequest) else request
            if any(field.name == "batch_size" for field in fields_of(plain)):
                self._check_batch(request.step, batch if isinstance(batch, int) else 0)

    def check(
        self,
        request: Request[Any] | type[Request[Any]],
        operator: str,
        method: str,
        num_rows: int | None,
        cohort_size: int | None = None,
    ) -> None:
        """Let a request pass or refuse it.

        Args:
            request: What is asked, or its type.
            operator: Name of the operator whose job it is, as the coordinator says.
            method: The job's method.
            num_rows: Training rows behind the answer; None: not known before the step has run. Requests whose answer
                says nothing of the data are not held to the smallest number.
            cohort_size: Clients that take part in the job, as the coordinator says; 0: it did not say. None: nobody
                is asked yet.

        Raises:
            PolicyError: Names what is forbidden and the key that allows it.
        """
        section = self._section
        if section.operators is not None and operator not in section.operators:
            raise PolicyError(
                f"this client runs no jobs of operator {operator!r}; "
                "its administrator can add the name to policy.operators"
            )
        if section.methods is not None and method not in section.methods:
            raise PolicyError(
                f"this client does not run method {method!r}; its administrator can add it to policy.methods"
            )
        if cohort_size is not None and cohort_size < section.min_cohort and section.min_cohort > 1:
            raise PolicyError(
                f"this client takes part in no job of fewer than {section.min_cohort} clients; let more join, "
                "or let this client's administrator lower policy.min_cohort"
            )
        self._check_step(request.step, method)
        refuse_strange(request)
        for plugin, why in plugins_behind(request):
            refuse_unnamed(plugin, section.plugins, why)
        self._check_kinds(request)
        self._check_batch(request.step, getattr(request.bare, "batch_size", 0) if isinstance(request, Request) else 0)
        if request.kinds and num_rows is not None and num_rows < section.min_rows:
            raise PolicyError(
                f"step {request.step} would tell about fewer than {section.min_rows} training rows; "
                "add rows, or let this client's administrator lower policy.min_rows. Rows that are held out for tests "
                "do not count: a test partition in the client file, or a smaller data.test_fraction in the job, leaves "
                "more of them"
            )

    def _check_kinds(self, request: Request[Any] | type[Request[Any]]) -> None:
        forbidden = [kind for kind in request.kinds if kind not in self._allowed]
        if forbidden:
            raise PolicyError(
                f"step {request.step} sends {', '.join(forbidden)}, which must not leave this client; "
                "its administrator can add it to policy.allow"
            )

        if seen := sent_in_the_clear(request, self._section):
            raise PolicyError(
                f"step {request.step} sends {', '.join(seen)} in the clear, and this client sends it in secure sums "
                'alone; set privacy.sums = "secure" in the job where its method has them, or let this client\'s '
                "administrator set policy.secure_sum.require = false"
            )

    def _check_batch(self, step: str, batch: int) -> None:
        if 0 < batch < self._section.min_rows:
            raise PolicyError(
                f"step {step} asks for batches of {batch} rows, so an answer may tell about fewer than "
                f"{self._section.min_rows} training rows; set method.batch_size to at least that, or to 0 for all "
                "rows, or let this client's administrator lower policy.min_rows"
            )

    def _check_step(self, step: str, method: str) -> None:
        """A job asks the steps of its method alone, for the method is what `policy.methods` judges."""
        steps = steps_of(method)
        if steps is None and self._section.methods is not None:
            raise PolicyError(
                f"method {method!r} is in policy.methods, but this client does not know which steps it may ask; its "
                "administrator can install the package that brings the method and states its steps, or remove "
                "policy.methods"
            )
        if steps is not None and step not in steps:
            raise PolicyError(
                f"a job of method {method!r} may not ask the step {step}, which belongs to other methods; the "
                "coordinator has to name the method that it runs, or one of the two ends needs a newer release"
            )


def sent_in_the_clear(request: Request[Any] | type[Request[Any]], section: PolicySection) -> list[Kind]:
    """Kinds that the answer to a request has in the clear, where the policy lets them leave in secure sums alone."""
    kind = request if isinstance(request, type) else type(request)
    return seen_in_the_clear(kind) if section.secure_sum.require else []
