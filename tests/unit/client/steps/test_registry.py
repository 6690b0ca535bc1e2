"""The table of steps and the requests that the daemon offers before the table is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernfed.federation.messages.catalogue import Requests, request_classes
from kernfed.federation.messages.later_fields import stated_fields
from kernfed.tensors import threads
from kernfed_client.steps.registry import STEPS
from kernfed_testing.in_process import bench, make_job, regression_rows


def test_every_request_has_a_step() -> None:
    """What the daemon says it answers, known from the messages alone, is what the table answers."""
    assert {request.step for request in request_classes()} == {request.step for request in STEPS}


def test_what_a_client_says_of_its_steps_needs_no_room() -> None:
    """Names and fields are those of the messages, and each request is found by its name."""
    known = Requests.of_all_rooms()
    assert {*known} == {request.step for request in STEPS}
    assert len(known) == len(STEPS)
    assert known.later_fields == stated_fields(STEPS)
    assert {*known.values()} == {*STEPS}
    assert known.get("nobody.asks") is None


def test_steps_have_the_threads_that_their_matrices_deserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All while rows are read, then as the rows and their kernel matrix say, then as the features do."""
    sizes: list[int] = []

    @contextmanager
    def noted(numbers: int) -> Iterator[None]:
        sizes.append(numbers)
        yield

    monkeypatch.setattr(threads, "suited", noted)
    bench(regression_rows({"ant": 60}), tmp_path).run(make_job("dkrr"))
    assert sorted(set(sizes), reverse=True) == [threads.LARGE, 60 * 60, 60 * 40]
