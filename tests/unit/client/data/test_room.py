"""Tests of `kernfed_client.data.room`: what does not fit is refused before it is computed."""

from __future__ import annotations

import pytest

from kernfed.errors import DataError
from kernfed_client.data.room import Room


def test_a_limit_refuses_what_a_method_would_keep() -> None:
    """Ridge sums of many rows need one matrix whatever the rows are; methods that keep features need them all."""
    room = Room()
    room.claim("a", 10_000_000, 4000, 0, lambda: 200 << 20)
    with pytest.raises(
        DataError, match=r"keeps ridge matrices for 4000 features.*0\.12 GiB, and 0\.10 GiB.*max_memory"
    ):
        room.claim("a", 10_000_000, 4000, 0, lambda: 100 << 20)
    with pytest.raises(DataError, match=r"2 matrices of 4000 features of 60000 training rows, about 3\.58 GiB"):
        room.claim("a", 60_000, 4000, 2, lambda: 1 << 30)


def test_few_features_ask_nobody() -> None:
    """What is small is not worth a look at the system's accounts."""
    asked: list[str] = []

    def usable() -> int:
        asked.append("asked")
        return 1 << 40

    Room().claim("a", 100, 500, 1, usable)
    assert asked == []


def test_clients_of_one_process_share_its_memory() -> None:
    """Each one would fit, all together do not; a claim replaces the same client's former one."""
    room = Room()
    for _ in range(3):
        room.claim("a", 10**9, 20_000, 0, lambda: 1 << 40)

    def fill() -> None:
        for i in range(10_000):
            room.claim(f"c{i}", 10**9, 20_000, 0, lambda: 1 << 40)

    with pytest.raises(DataError, match=r"clients keep in this one process needs about .* simulate fewer clients"):
        fill()
