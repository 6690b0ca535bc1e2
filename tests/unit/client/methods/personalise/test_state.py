"""What a client keeps: the secret of its noise, made once and never empty, and the names of its teachers."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernfed.methods.personalise.messages import ShareRequest
from kernfed_client.methods.personalise.embedded import Beside
from kernfed_client.methods.personalise.state import MAX_TEACHERS, Personal, noise_stream

REQUEST: Any = SimpleNamespace(
    view="x", features=None, noise_factor=1.0, mean=np.zeros(2), deviation=np.ones(2), seed=3
)

NONE = np.empty(0, dtype=np.int64)


def message(num_rows: float) -> ShareRequest:
    """What two clients shared."""
    return ShareRequest(
        clients=("a", "b"),
        num_rows=np.array([num_rows, 2.0]),
        means=np.zeros((2, 2)),
        traces=np.ones(2),
        grams=np.ones((2, 1)),
        moments=np.ones((2, 1, 1)),
        squares=np.ones(2),
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


def test_a_model_names_its_largest_teachers_and_sums_up_the_others() -> None:
    """A thousand clients' files do not hold a million names; all weight is told."""
    num, weights = MAX_TEACHERS + 5, np.arange(1.0, MAX_TEACHERS + 6)
    shared: Any = SimpleNamespace(clients=tuple(f"c{i}" for i in range(num)))
    empty = np.empty((0, 0))
    kept = Personal(
        REQUEST, empty, empty, empty, NONE, Beside(empty, empty, NONE), shared=shared, weights=weights / weights.sum()
    )
    facts = kept.facts()
    named = facts["learns_from"]
    assert [one["client"] for one in named[:2]] == [f"c{num - 1}", f"c{num - 2}"]
    assert len(named) == MAX_TEACHERS
    assert facts["others"]["clients"] == 5
    np.testing.assert_allclose(facts["others"]["weight"] + sum(one["weight"] for one in named), 1.0)
    kept.weights = np.eye(num)[0]
    assert "others" not in kept.facts()


def test_clients_of_one_process_share_the_sums_of_one_message() -> None:
    """A simulation has one copy of what follows from it; another message has its own, and nobody's are let go."""
    empty = np.empty((0, 2))
    everyone = [Personal(REQUEST, empty, empty, empty, NONE, Beside(empty, empty, NONE)) for _ in range(2)]
    first, second = (message(rows) for rows in (3.0, 4.0))
    job: Any = SimpleNamespace(client="a")
    found = []
    for given in (first, second):
        for state in everyone:
            state.shared = given
        found.append([state.sums(job) for state in everyone])
    assert found[0][0] is found[0][1]
    assert found[1][0] is found[1][1]
    assert (found[0][0].num_rows[0], found[1][0].num_rows[0]) == (3.0, 4.0)
    assert found[0][0].grams is first.grams
    gone = weakref.ref(everyone[0].of_all)
    del found, everyone, state
    assert gone() is None
