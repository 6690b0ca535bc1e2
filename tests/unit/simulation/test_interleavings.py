"""Frames that are lost, late or sent twice, crashes, and books that come back older: the same model, or a word.

Searched by machine: sequences of decisions on a federation in one process (`kernfed_testing.worlds.explored`), of a
method that forgets and of methods with a memory at their clients. `--hypothesis-profile thorough` searches much longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernfed.arrays import Array
from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.job_sections import CohortSection
from kernfed.methods.registry import METHODS
from kernfed_testing.federation import COLUMNS, make_csv
from kernfed_testing.methods import variants
from kernfed_testing.methods.installed import installed
from kernfed_testing.worlds.explored import Explored, differs, undisturbed
from kernfed_testing.worlds.lines import in_memory

NUM_ROWS = 14
"""Of each client's file."""
SEARCHED = installed(
    {
        "fedavg": {"name": "fedavg", "rounds": 6},
        "ofskl": {"name": "ofskl", "rounds": 6, "num_frequencies": 4},
        "em-kofl": {"name": "em-kofl", "rounds": 6, "num_frequencies": 4},
        "perfedavg": {"name": "perfedavg", "rounds": 6, "hidden": 3},
    }
)
"""Jobs that are searched most: of one that forgets, and of such with a memory at their clients."""
JOBS = {**variants.METHODS, **SEARCHED}
"""Every method in its variants."""
QUICK = settings.default is None or settings.default.max_examples <= 100
FIRST = {table["name"]: label for label, table in reversed(JOBS.items())}
OTHERS = sorted({*(FIRST.values() if QUICK else JOBS)} - SEARCHED.keys())
"""Of every other method the first variant; in a thorough search all of them."""
ACTIONS = (
    *("both", "both", "one", "one", "down", "twice"),
    *("cut", "leave", "close", "kill client", "kill coordinator", "kill both"),
    *("lose a write", "lose writes", "back up client", "restore client"),
    *("revoke", "enrol"),
)

Action = tuple[str, str, int]
"""What, whom it meets, and how many deliveries follow."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two clients' files."""
    return {name: client_file(tmp_path_factory.mktemp(name), name) for name in "ab"}


def client_file(folder: Path, name: str) -> Path:
    """The file of a client that shares all, with its rows beside it."""
    rows = make_csv(name, NUM_ROWS).replace(",".join(COLUMNS), ",".join(variants.COLUMNS))
    (folder / "train.csv").write_text(rows)
    file = folder / "client.toml"
    file.write_text(
        'coordinator = "localhost:1"\ndevice = "cpu"\nthreads = 1\nmax_memory_bytes = 1000000000\n'
        '[datasets.default.train]\npath = "train.csv"\n'
        f"[policy]\nmin_rows = 1\nallow = {[str(kind) for kind in Kind]}\n"
    )
    return file


@dataclass(frozen=True)
class Job:
    """A job, the files that it names, and the last checkpoint that it leaves in peace."""

    file: JobFile
    named: Mapping[str, bytes]
    twin: Mapping[str, Array] = field(repr=False)

    def beginning(self, preflight: str) -> JobFile:
        """The job; with `quorum` it begins without a client, which then joins it where the method lets it."""
        return self.file.model_copy(update={"cohort": self.file.cohort.model_copy(update={"preflight": preflight})})


class Jobs(dict[str, Job]):
    """Jobs by their labels, each made when it is first asked for."""

    def __init__(self, folder: Path, files: Mapping[str, Path]) -> None:
        super().__init__()
        self._folder, self._files = folder, files

    def __missing__(self, label: str) -> Job:
        folder = self._folder / label
        folder.mkdir()
        cohort = CohortSection.model_validate(
            {"clients": ["a", "b"], "min_clients": 1, "deadline_s": 1e6, "grace_s": 1e6}
        )
        made, named = variants.job_of({k: "a" if k == "target" else v for k, v in JOBS[label].items()}, folder)
        file = made.model_copy(update={"name": "explored", "seed": 3, "cohort": cohort})
        twin = asyncio.run(undisturbed(folder / "twin", self._files, file, named))
        return self.setdefault(label, Job(file, named, twin))

    def __repr__(self) -> str:
        """A word, for whole checkpoints hide in the report of a failure what it was."""
        return "jobs"


@pytest.fixture(scope="module")
def jobs(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """The jobs and their twins."""
    return Jobs(tmp_path_factory.mktemp("jobs"), files)


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


async def run(files: dict[str, Path], world: Explored, actions: Sequence[Action]) -> Explored:
    """A job under these actions, to its end."""
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
        if "online" in METHODS:
            patches.enter_context(mock.patch("kernfed_server.methods.online.newcomers._LOOK_S", 0.0))
        yield


def faults(files: dict[str, Path], job: Job, actions: Sequence[Action], preflight: str = "all") -> list[str]:
    """What is wrong with a job: other numbers without a word, an answer that counts twice, rows that do."""
    twin = job.twin
    with tempfile.TemporaryDirectory() as folder:
        world = asyncio.run(run(files, Explored(Path(folder), files, job.beginning(preflight), job.named), actions))
        if world.failed:  # before round 1 a client without a certificate stops the job, where all are needed
            return [] if "REVOKED" in world.failed and preflight == "all" else [world.failed]
        state = world.state
    found = [e.text for e in world.events if "second, different reply" in e.text]
    if not world.told:
        alike = {"traffic"}  # what is asked twice is counted twice
        if any("gave no metrics when they were last asked" in e.message for e in world.events):
            alike |= {"measured", "run.measured", "run.sound"}  # what is measured decides which model is kept
        found += [f"another {name}" for name in differs(state, twin) if name not in alike]
    streamed = METHODS[job.file.method.name].reads_stream
    if streamed and "again" not in str(world.told) and state["num_rows"] > twin["num_rows"]:
        found.append(f"{state['num_rows']} rows were learned of {twin['num_rows']}")
    return found


SEQUENCES = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from("ab"), st.integers(0, 24)), min_size=2, max_size=12
)
PREFLIGHTS = st.sampled_from(["all", "quorum"])


@pytest.mark.parametrize("label", SEARCHED)
@settings(
    max_examples=8 if QUICK else 500,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=SEQUENCES, preflight=PREFLIGHTS)
def test_the_same_model_or_a_word(
    files: dict[str, Path], jobs: Jobs, label: str, actions: list[Action], preflight: str
) -> None:
    """A job whose rounds were those of its twin leaves its twin's numbers; one whose rounds were not says so."""
    assert faults(files, jobs[label], actions, preflight) == []


@pytest.mark.parametrize("label", OTHERS)
@settings(
    max_examples=2 if QUICK else 300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=SEQUENCES, preflight=PREFLIGHTS)
def test_every_method(files: dict[str, Path], jobs: Jobs, label: str, actions: list[Action], preflight: str) -> None:
    """So does a job of any other method, whatever its clients are prepared by."""
    assert faults(files, jobs[label], actions, preflight) == []


@pytest.mark.parametrize("label", SEARCHED)
def test_left_in_peace(files: dict[str, Path], jobs: Jobs, label: str) -> None:
    """Over lines in memory a job ends as in one process."""
    assert faults(files, jobs[label], []) == []


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


@pytest.mark.parametrize(("label", "actions"), [found for found in FOUND if found.values[0] in JOBS])
def test_what_was_found_once(files: dict[str, Path], jobs: Jobs, label: str, actions: list[Action]) -> None:
    """The shortest sequences that the search found do no harm any more."""
    assert faults(files, jobs[label], actions) == []


def test_a_preparation_that_is_cut_in_its_midst(files: dict[str, Path], jobs: Jobs) -> None:
    """A client is prepared again, and the coordinator dies within that: the next one asks on, of half a preparation.

    Which frames arrive before the end differs from run to run, and so does the outcome.
    """
    actions: list[Action] = [
        *(("leave", "a", 11), ("down", "b", 4), ("back up client", "b", 14), ("enrol", "a", 6), ("enrol", "a", 9)),
        *(("cut", "a", 18), ("down", "a", 24), ("close", "a", 16), ("restore client", "b", 14), ("kill both", "a", 9)),
        *(("cut", "b", 13), ("kill both", "a", 22)),
    ]
    assert faults(files, jobs["fedavg"], actions, "quorum") == []


@pytest.mark.skipif("ofskl" not in JOBS, reason="its method is not installed")
def test_answers_under_scales_that_were_agreed_on_before(files: dict[str, Path], jobs: Jobs) -> None:
    """Rounds that a client learned under scales which the coordinator lost are learned again under the new ones."""
    actions = [("twice", "a", 5), ("close", "b", 21), ("lose writes", "a", 4), ("leave", "a", 5)]
    assert faults(files, jobs["ofskl"], actions, "quorum") == []


@pytest.mark.skipif("ofskl" not in JOBS, reason="its method is not installed")
def test_metrics_of_some_of_the_clients(files: dict[str, Path], jobs: Jobs) -> None:
    """A client that leaves behind the last step, before all are measured, is named as one without metrics."""
    actions = [("kill client", "b", 22), ("both", "a", 22), ("enrol", "a", 6), ("kill both", "b", 16)]
    actions += [("revoke", "b", 21), ("leave", "a", 17)]
    assert faults(files, jobs["ofskl"], actions, "quorum") == []
