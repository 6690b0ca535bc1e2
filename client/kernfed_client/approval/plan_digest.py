"""The digest by which a plan that was approved is known again."""

from __future__ import annotations

import hashlib
import json

from kernfed.jobs.job_file import JobFile

_UNTOLD = ("name", "report")
"""Keys of a job file that decide nothing of what leaves."""


def digest_of(job: JobFile, operator: str) -> str:
    """Digest by which a plan that was approved is known again.

    It is of all keys of the job file that act, set or by default, and of its operator. The name, `report` and comments
    do not count. The seed does: another one draws other random numbers, and maybe other rows, and so tells more.

    Args:
        job: The job file.
        operator: Who submitted it.
    """
    told = {key: value for key, value in job.plan().items() if key not in _UNTOLD}
    text = json.dumps({"operator": operator, "job": told}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
