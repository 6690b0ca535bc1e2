"""Eigenvalues of training and test rows before round 1: those of the rows, told and warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed.methods.reweight.eigenvalue_condition import NUM_VALUES, eigenvalue_condition
from kernfed.methods.reweight.spectrum_messages import SpectraRequest
from kernfed_client.methods.reweight.spectrum_steps import spectra
from kernfed_testing.in_process import bench
from kernfed_testing.methods.personalise import notes, run
from kernfed_testing.methods.reweight import finding, reweight_job, sharing, shifted_rows


def largest(x: Floats) -> Floats:
    """Eigenvalues of X'X/n, falling, as many as are compared."""
    values: Floats = np.linalg.eigvalsh(x.T @ x / len(x))[::-1][:NUM_VALUES].clip(0.0)
    return values


def test_the_condition_is_that_of_the_rows(tmp_path: Path) -> None:
    """Counts of each client agree with numpy's eigenvalues of its features; the job warns of who is beyond."""
    rows = shifted_rows(size=60, shift=2.0)
    jobs = sharing(rows, tmp_path)
    settings: dict[str, Any] = {"compare": False, "ridge": 1e-3, "rounds": 1, "features": "intercept = false"}
    done = run(reweight_job(compare_spectra=True, **settings), jobs)
    told: dict[str, Any] = {c["client"]: c["condition"] for c in finding(done)["clients"]}
    beyond = set()
    for client, job in jobs.items():
        z, t = job.z_train.numpy(), job.test_rows.whole().numpy()
        expected = eigenvalue_condition(largest(z), largest(t), 1e-3)
        assert expected is not None
        assert told[client]["directions"] == expected.directions
        assert told[client]["within"] == expected.within
        assert told[client]["greatest"] == pytest.approx(expected.greatest, rel=1e-4)
        beyond |= set() if expected.holds else {client}
    warned = [note for note in notes(done).splitlines() if "beyond those of training rows" in note]
    assert beyond
    assert len(warned) == 1
    assert all(f"{client} (" in warned[0] for client in beyond)


def test_few_test_rows_tell_nothing(tmp_path: Path) -> None:
    """With fewer test rows than an aggregate must stand for, a client gives those of its training rows alone."""
    federation = bench(shifted_rows(size=60), tmp_path)
    federation.run(reweight_job(compare=False, rounds=1))
    job = federation.jobs["ant"]
    whole = spectra(job, SpectraRequest(num_values=5, mapped=False))
    x = job.x_train
    expected = np.sort(np.linalg.eigvalsh(x.T @ x / len(x)))[::-1]
    assert np.allclose(whole.train[:2], expected)
    assert not whole.train[2:].any()  # two columns have no more
    assert whole.num_points == job.num_test_rows
    job.file = ClientFile(state=tmp_path / "ant", policy=PolicySection(min_rows=1000))
    few = spectra(job, SpectraRequest(num_values=5, mapped=False))
    assert few.num_points == 0
    assert not few.test.any()
