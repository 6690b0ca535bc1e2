"""Jobs of the soak: each method has one, which nobody sees to fail before a soak that takes hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.jobs.job_file import parse_job
from kernfed.methods.registry import METHODS
from kernfed_testing.crashes.soak import CLIENTS, job_of, with_files


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_job(tmp_path: Path, method: str) -> None:
    """No key of it does nothing, with a quorum or without; its columns have types where the method takes columns."""
    for least in (len(CLIENTS), len(CLIENTS) - 1):
        texts = [with_files(job_of(method, least, typed=typed), tmp_path)[0] for typed in (False, True)]
        plain, typed = map(parse_job, texts)
        assert plain.method.name == method
        assert (typed.data is None) == (plain.data is None)
        assert typed.data is None or typed.data.columns
