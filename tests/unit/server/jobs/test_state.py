"""State of a workflow in a checkpoint: what is written is read, and so is what earlier releases wrote."""

from __future__ import annotations

import numpy as np

from kernfed_server.jobs.state import State, json_array, names_array


def test_names_are_kept_as_lines_of_text() -> None:
    """The bytes are those of earlier releases, whose jobs go on."""
    assert names_array(("air", "sea")).tobytes() == b"air\nsea"
    assert names_array(("air", "", "sea")).tobytes() == b"air\n\nsea"
    assert names_array(("",)).tobytes() == b"\n"
    assert names_array(()).size == 0


def test_names_come_back_as_they_were() -> None:
    """Non-ASCII names, empty texts between others, and none at all."""
    for names in (("zürich", "北"), ("x", "", "z"), ("", ""), ("a",), ()):
        assert State({"members": names_array(names)}).names("members") == names


def test_json_values_come_back_as_they_were() -> None:
    """Floats keep their bits, and the bytes are plain JSON."""
    value = {"fedavg": {"pooled": {"global": {"mse": 0.1 + 0.2}}, "clients": {}}}
    state = State({"told": json_array(value)})
    assert state.json("told") == value
    assert State({"told": np.frombuffer(b'{"a": [1, null]}', dtype=np.uint8)}).json("told") == {"a": [1, None]}


def test_numbers_and_flags_are_arrays_of_one() -> None:
    """Booleans were written as booleans by some methods and as integers by others."""
    state = State({"uploads": np.array([2.5]), "finished": np.array([True]), "over": np.array([0], dtype=np.int64)})
    assert (state.number("uploads"), state.flag("finished"), state.flag("over")) == (2.5, True, False)


def test_a_part_has_the_arrays_of_its_prefix_without_it() -> None:
    """Arrays of other parts are not in it."""
    state = State({"part.weights": np.zeros(2), "part.names": names_array(("a",)), "phase": np.array([1])})
    part = state.part("part.")
    assert sorted(part) == ["names", "weights"]
    assert len(part) == 2
    assert part.names("names") == ("a",)
