"""Frames that are lost, late or sent twice, crashes, and books that come back older: the same model, or a word.

Searched by machine: sequences of decisions on a federation in one process (`kernfed_testing.explored`), of a method
that forgets and of methods with a memory at their clients. `--hypothesis-profile thorough` searches much longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernfed.arrays import Array
from kernfed.methods import registry
from kernfed_testing.explored import Explored, differs, undisturbed
from kernfed_testing.federation import COLUMNS, make_csv
from kernfed_testing.lines import in_memory

NUM_ROWS, NUM_TRAIN = 14, 2 * 12
"""Rows of each client's file, and of both clients' training rows together: a job has fewer rounds than these."""
KEYS = {
    "fedavg": "",
    "ofskl": "num_frequencies = 4",
    "em-kofl": "num_frequencies = 4",
    "perfedavg": "hidden = 3",
}
METHODS = {name: keys for name, keys in KEYS.items() if name in registry.METHODS}
ACTIONS = (
    *("both", "both", "one", "one", "down", "twice"),
    *("cut", "leave", "close", "kill client", "kill coordinator", "kill both"),
    *("lose a write", "lose writes", "back up client", "restore client"),
    *("revoke", "enrol"),
)
QUICK = settings.default is None or settings.default.max_examples <= 100

Action = tuple[str, str, int]
"""What, whom it meets, and how many deliveries follow."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two clients' files."""
    found = {}
    for name in "ab":
        folder = tmp_path_factory.mktemp(name)
        (folder / "train.csv").write_text(make_csv(name, NUM_ROWS))
        found[name] = folder / "client.toml"
        found[name].write_text(
            'coordinator = "localhost:1"\ndevice = "cpu"\nthreads = 1\n'
            '[datasets.default.train]\npath = "train.csv"\n[policy]\nmin_rows = 1\n'
        )
    return found


class Twins(dict[str, dict[str, Array]]):
    """The last checkpoint of each method's job, left in peace."""

    def __repr__(self) -> str:
        """A word, for whole checkpoints hide in the report of a failure what it was."""
        return "twins"


@pytest.fixture(scope="module")
def twins(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """The last checkpoint of each method's job, left in peace."""
    return Twins({m: asyncio.run(undisturbed(tmp_path_factory.mktemp("twin"), files, job_text(m))) for m in METHODS})


def job_text(method: str, preflight: str = "all") -> str:
    """A job; with `quorum` it begins without a client, which then joins it where the method lets it."""
    lines = ['name = "explored"', "seed = 3", "[method]", f'name = "{method}"', "rounds = 6", METHODS[method]]
    lines += ["[cohort]", 'clients = ["a", "b"]', "min_clients = 1", "deadline_s = 1e6", "grace_s = 1e6"]
    lines += [f'preflight = "{preflight}"']
    lines += ["[data]", 'task = "regression"', 'target = "y"', f"features = {list(COLUMNS)}".replace("'", '"')]
    lines += ["[features]", "num_frequencies = 4"] if method == "fedavg" else []
    return "\n".join(lines) + "\n"


async def act(world: Explored, action: Action) -> None:
    """Do what an action says, then let some frames through."""
    what, name, steps = action
    names = "ab"
    if what in ("kill coordinator", "kill both", "lose a write", "lose writes"):
        await world.kill_coordinator({"lose a write": 1, "lose writes": 3}.get(what, 0))
    if what in ("kill client", "kill both", "back up client", "restore client"):
        await world.kill_client(name)
        if what == "back up client":
            world.keep(name)
        elif what == "restore client":
            world.put_back(name)
        world.start_client(name)
    if world.task is None:
        world.start_coordinator()
    if what in ("cut", "leave"):
        world.cut(name)
    if what == "revoke":
        world.revoke(name)
    if what == "enrol":
        world.enrol(name)
    if what == "close":
        world.close_without()
    await world.settle()
    for other in "ab":
        if what != "leave" or other != name:
            world.connect(other)
    if what == "twice":
        await world.deliver(name, "up", twice=True)
    if what in ("one", "leave"):
        names = name if what == "one" else {"a": "b", "b": "a"}[name]
    if what == "down":
        await world.deliver(name, "down")
        return
    await world.progress(names, steps)


async def run(root: Path, files: dict[str, Path], text: str, actions: Sequence[Action]) -> Explored:
    """A job under these actions, to its end."""
    world = Explored(root, files, text)
    for name in files:
        world.start_client(name)
    world.start_coordinator()
    try:
        for action in actions:
            if world.ended:
                break
            await act(world, action)
        await world.finish()
        return world
    finally:
        await world.close()


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with in_memory(), contextlib.ExitStack() as patches:
        if "ofskl" in METHODS:
            patches.enter_context(mock.patch("kernfed_server.methods.online.newcomers._LOOK_S", 0.0))
        yield


def faults(files: dict[str, Path], twin: dict[str, Array], text: str, actions: Sequence[Action]) -> list[str]:
    """What is wrong with a job: other numbers without a word, an answer that counts twice, rows that do."""
    with tempfile.TemporaryDirectory() as folder:
        world = asyncio.run(run(Path(folder), files, text, actions))
        if world.failed:  # before round 1 a client without a certificate stops the job, where all are needed
            return [] if "REVOKED" in world.failed and '"all"' in text else [world.failed]
        state = world.state
    found = [e.text for e in world.events if "second, different reply" in e.text]
    if not world.told:
        alike = {"traffic"}  # what is asked twice is counted twice
        if any("gave no metrics when they were last asked" in e.message for e in world.events):
            alike |= {"measured", "run.measured"}
        found += [f"another {name}" for name in differs(state, twin) if name not in alike]
    if "num_rows" in state and "again" not in str(world.told) and state["num_rows"] > NUM_TRAIN:
        found.append(f"{state['num_rows']} rows were learned of {NUM_TRAIN}")
    return found


@pytest.mark.parametrize("method", METHODS)
@settings(
    max_examples=10 if QUICK else 500,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    actions=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from("ab"), st.integers(0, 24)), min_size=2, max_size=12
    ),
    preflight=st.sampled_from(["all", "quorum"]),
)
def test_the_same_model_or_a_word(
    files: dict[str, Path], twins: Twins, method: str, actions: list[Action], preflight: str
) -> None:
    """A job whose rounds were those of its twin leaves its twin's numbers; one whose rounds were not says so."""
    assert faults(files, twins[method], job_text(method, preflight), actions) == []


@pytest.mark.parametrize("method", METHODS)
def test_left_in_peace(files: dict[str, Path], twins: Twins, method: str) -> None:
    """Over lines in memory a job ends as in one process."""
    assert faults(files, twins[method], job_text(method), []) == []


FOUND = [
    pytest.param(
        "fedavg",
        [
            ("back up client", "b", 15),
            ("restore client", "b", 7),
            ("back up client", "b", 18),
            ("kill both", "a", 23),
        ],
        id="a setup step from memory on top of others that were done again",
    ),
    pytest.param(
        "fedavg",
        [("both", "a", 30), ("kill client", "a", 0), ("lose writes", "a", 30), ("lose writes", "a", 0)],
        id="means of features that are centred already",
    ),
    pytest.param(
        "em-kofl",
        [("both", "a", 14), ("cut", "a", 18), ("cut", "a", 16), ("kill coordinator", "b", 2)],
        id="all parameters in place of those that a client moved by itself",
    ),
    pytest.param(
        "perfedavg",
        [("both", "b", 24), ("one", "b", 15), ("cut", "b", 8)],
        id="a round without a client, in silence",
    ),
]


@pytest.mark.parametrize(("method", "actions"), [found for found in FOUND if found.values[0] in METHODS])
def test_what_was_found_once(files: dict[str, Path], twins: Twins, method: str, actions: list[Action]) -> None:
    """The shortest sequences that the search found do no harm any more."""
    assert faults(files, twins[method], job_text(method), actions) == []


def test_a_preparation_that_is_cut_in_its_midst(files: dict[str, Path], twins: Twins) -> None:
    """A client is prepared again, and the coordinator dies within that: the next one asks on, of half a preparation.

    Which frames arrive before the end differs from run to run, and so does the outcome.
    """
    actions: list[Action] = [
        *(("leave", "a", 11), ("down", "b", 4), ("back up client", "b", 14), ("enrol", "a", 6), ("enrol", "a", 9)),
        *(("cut", "a", 18), ("down", "a", 24), ("close", "a", 16), ("restore client", "b", 14), ("kill both", "a", 9)),
        *(("cut", "b", 13), ("kill both", "a", 22)),
    ]
    assert faults(files, twins["fedavg"], job_text("fedavg", "quorum"), actions) == []


@pytest.mark.skipif("ofskl" not in METHODS, reason="its method is not installed")
def test_answers_under_scales_that_were_agreed_on_before(files: dict[str, Path], twins: Twins) -> None:
    """Rounds that a client learned under scales which the coordinator lost are learned again under the new ones."""
    actions = [("twice", "a", 5), ("close", "b", 21), ("lose writes", "a", 4), ("leave", "a", 5)]
    assert faults(files, twins["ofskl"], job_text("ofskl", "quorum"), actions) == []


@pytest.mark.skipif("ofskl" not in METHODS, reason="its method is not installed")
def test_metrics_of_some_of_the_clients(files: dict[str, Path], twins: Twins) -> None:
    """A client that leaves behind the last step, before all are measured, is named as one without metrics."""
    actions = [("kill client", "b", 22), ("both", "a", 22), ("enrol", "a", 6), ("kill both", "b", 16)]
    actions += [("revoke", "b", 21), ("leave", "a", 17)]
    assert faults(files, twins["ofskl"], job_text("ofskl", "quorum"), actions) == []
