"""The secret of a client's noise: made once, for its owner alone, and never empty."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernfed_client.methods.personalise.state import noise_stream

REQUEST: Any = SimpleNamespace(
    view="x", features=None, noise_factor=1.0, mean=np.zeros(2), deviation=np.ones(2), seed=3
)


def drawn(state: Path) -> int:
    """A number of the noise that a client with this state folder adds."""
    job: Any = SimpleNamespace(
        file=SimpleNamespace(state=state), durable=True, job_id="job", client="a", dataset="default"
    )
    return int(noise_stream(job, REQUEST).integers(2**62, 1)[0])


def test_the_same_request_gets_the_same_noise(tmp_path: Path) -> None:
    """In each life of the daemon; another client's differs, and nobody else may read the secret."""
    assert drawn(tmp_path / "a") == drawn(tmp_path / "a")
    assert drawn(tmp_path / "a") != drawn(tmp_path / "b")
    assert (tmp_path / "a" / "noise.key").stat().st_mode & 0o777 == 0o600


def test_an_empty_secret_is_made_anew(tmp_path: Path) -> None:
    """A crash of earlier releases could leave one, and noise of an empty secret could be taken off by anybody."""
    state = tmp_path / "a"
    state.mkdir()
    (state / "noise.key").touch()
    noise = drawn(state)
    assert len((state / "noise.key").read_bytes()) == 64
    assert drawn(state) == noise
