"""The information that may leave this site: the [policy] table of the client file, asked before a step runs."""

from __future__ import annotations

from typing import Any

from kernfed.errors import PolicyError
from kernfed.federation.messages.base import Request
from kernfed.jobs.client_file import PolicySection


class Policy:
    """Decides over requests. A refusal names the key of the client file that would allow it."""

    def __init__(self, section: PolicySection) -> None:
        self._section = section
        self._allowed = frozenset(section.allow)

    def check(
        self, request: Request[Any] | type[Request[Any]], operator: str, method: str, num_rows: int | None
    ) -> None:
        """Let a request pass or refuse it.

        Args:
            request: What is asked, or its type.
            operator: Name of the operator whose job it is, from the operator's certificate.
            method: The job's method.
            num_rows: Training rows behind the answer; None: not known before the step has run. Requests whose answer
                says nothing of the data are not held to the smallest number.

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
        forbidden = [kind for kind in request.kinds if kind not in self._allowed]
        if forbidden:
            raise PolicyError(
                f"step {request.step} sends {', '.join(forbidden)}, which must not leave this client; "
                "its administrator can add it to policy.allow"
            )
        if request.kinds and num_rows is not None and num_rows < section.min_rows:
            raise PolicyError(
                f"step {request.step} would tell about fewer than {section.min_rows} training rows; "
                "add rows, or let this client's administrator lower policy.min_rows. Rows that are held out for tests "
                "do not count: a test partition in the client file, or a smaller data.test_fraction in the job, leaves "
                "more of them"
            )
