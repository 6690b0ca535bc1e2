"""Jobs of the soak: each method has one, which nobody sees to fail before a soak that takes hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.jobs.job_file import parse_job
from kernfed.methods.registry import METHODS
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.crashes.soak import CLIENTS, job_of, with_files
from kernfed_testing.federation import make_csv


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_job(tmp_path: Path, method: str) -> None:
    """No key of it does nothing, with a quorum or without; its columns have types where the method takes columns."""
    for least in (len(CLIENTS), len(CLIENTS) - 1):
        texts = [with_files(job_of(method, least, typed=typed), tmp_path)[0] for typed in (False, True)]
        plain, typed = map(parse_job, texts)
        assert plain.method.name == method
        assert (typed.data is None) == (plain.data is None)
        assert typed.data is None or typed.data.columns


@pytest.mark.parametrize("method", METHODS)
def test_every_job_ends_undisturbed(tmp_path: Path, method: str) -> None:
    """On the soak's own rows, with columns of types: a twin that fails would end the soak."""
    for name in CLIENTS:
        (tmp_path / f"{name}.csv").write_text(make_csv(name))
        (tmp_path / f"{name}.toml").write_text(
            f'threads = 1\n[datasets.default.train]\npath = "{name}.csv"\n[policy]\nmin_rows = 1\n'
        )
    text, files = with_files(job_of(method, typed=True), tmp_path)
    clients = from_client_files([tmp_path / f"{name}.toml" for name in CLIENTS], tmp_path / "state")
    assert simulate(parse_job(text), clients, text=text, files=files).error is None
