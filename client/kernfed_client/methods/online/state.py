"""A client's state of an online job from round to round: on disk, for the last rounds.

After a crash of the client the newest state is read back, and a task that is asked again gets the answer that is kept
with it. A coordinator that lost the round it had open, the one whose checkpoint it was writing, and the one before,
finds the state before all three in memory. For one that was restored from a backup the file is searched, which holds
those of many rounds.

States are records at the end of one file, each with its length and checksum; one that a crash cut off does not count.
A round is a single write, for opening and renaming files would take longer than learning the row. When the file has
grown large, its last records move to a new one, which takes its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from kernfed import files
from kernfed.arrays import Array, Floats
from kernfed.journal import Framing, Journal
from kernfed.methods.online.learner import Learner
from kernfed_client.streams.faults import FileChange, RowFault
from kernfed_client.streams.streams import Position

log = structlog.get_logger(__name__)

STATE_FILE = "rounds.state"
MAX_FILE_BYTES = 16 << 20
"""A file that is larger gives way to one with the last states, half as large."""

_FRAMING = Framing(b"KFS1", "Q")

KEPT_STATES = 4
"""After the open round, the closed one whose checkpoint is being written, and two before that."""

MAX_WAITING = 10_000
"""Rows that may wait for their target; the oldest is given up for one more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row that was predicted and has no target yet."""

    x: Floats
    """Scaled, (P,)."""
    told: float
    """Predictions, in the data's units."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows that were not learned, by the reason."""

    faulty: int = 0
    """A value is missing or not a number, or there is no row for a target."""
    far: int = 0
    """A number lies too far beyond the agreed ranges."""
    repeated: int = 0
    """A row without target came while one with its key waited."""
    failed: int = 0
    """Learning from them failed twice."""
    text: int = 0
    """Of the faulty, by `kernfed_client.streams.faults.RowFault`; the sum is less where an earlier release counted."""
    gap: int = 0
    width: int = 0
    no_key: int = 0
    twice: int = 0
    unanswered: int = 0
    rotated: int = 0
    """Files that changed, by `kernfed_client.streams.faults.FileChange`."""
    replaced: int = 0
    header: int = 0
    behind: int = 0
    """Times that the coordinator had counted rows which this state does not know: they are learned again."""
    ahead: int = 0
    """Times that the coordinator fell back behind all states that are kept: what was learned since is not repeated."""
    rare: int = 0
    """Rows that stood out in a column, or by their target, in a round as large as one may be, with too few others."""
    near: int = 0
    """Rows of which earlier jobs used others together, or some of these with others that this job leaves out."""

    def and_more(self, faults: Mapping[RowFault, int], changes: Mapping[FileChange, int], **more: int) -> LeftOut:
        """With what more was left out and met; `more` by the names of fields."""
        by_kind = {str(kind): getattr(self, kind) + count for kind, count in (*faults.items(), *changes.items())}
        faulty = self.faulty + sum(faults.values())
        by_kind |= {name: getattr(self, name) + count for name, count in more.items()}
        return replace(self, faulty=faulty, **by_kind)


@dataclass(frozen=True, slots=True)
class ClientState:
    """A client after a round. N kernels, F features each."""

    round_num: int
    """Last round whose rows are counted here; 0: none."""
    after: int
    """The same of the state that it was learned from; -1: not known, for an earlier release wrote it."""
    request: str
    """Digest of what that round asked."""
    position: Position
    """Position up to which the stream was read."""
    left_out: LeftOut
    learner: Learner
    theta: Array
    """Parameters as the coordinator last sent them, (N, F); the weights of a network for a method that has one."""
    version: int
    """Round whose request brought them; -1: none did."""
    waiting: Mapping[str, Waiting]
    """By key, oldest first."""
    reply: Mapping[str, Array]
    """Arrays and numbers of the answer to that round; empty before the first."""

    def moved_to(self, theta: Array, version: int) -> ClientState:
        """With the parameters of a newer request."""
        return replace(self, theta=theta, version=version)


class StateKeeper:
    """The states of the last rounds; in memory, and on disk where there is a folder."""

    def __init__(self, start: ClientState, folder: Path | None) -> None:
        """Read back what an earlier life kept.

        Args:
            start: Before the first round.
            folder: For the file; None: states are not needed beyond this process.
        """
        self._start = start
        self._path = None if folder is None else folder / STATE_FILE
        self._journal: Journal | None = None
        self._kept: list[ClientState] = []
        if self._path is not None and self._path.is_file():
            self._journal = Journal(self._path, _FRAMING)
            for (body,) in self._journal.read():
                self._remember(_decode(body))
        if self._kept:
            log.info("state of a stream read back", round_num=self._kept[-1].round_num)

    @property
    def newest(self) -> ClientState:
        """After the last round."""
        return self._kept[-1] if self._kept else self._start

    def answered(self, round_num: int, request: str, uncounted_from: int = 0) -> Mapping[str, Array] | None:
        """The answer that is kept, where it is to this question and was computed from the state that counts."""
        newest = self.newest
        if newest.round_num != round_num or newest.request != request:
            return None
        return newest.reply if not uncounted_from or newest.after < uncounted_from else None

    def before(self, round_num: int, uncounted_from: int = 0) -> ClientState:
        """The state before a round; where there is none, the newest, which takes its place and counts so.

        Args:
            round_num: The round.
            uncounted_from: Round from which on no rows of this client counted at the coordinator, whose answers never
                arrived there; 0: not known.
        """
        limit = min(round_num, uncounted_from) if uncounted_from else round_num
        found = _before(self._kept, limit, self._start)
        if found is None and self._path is not None:
            found = _before(self._on_disk(self._path), limit, self._start)
        if found is None:
            log.warning(
                "the coordinator fell back further than this client keeps states; going on from the newest",
                round_num=round_num,
                newest=self.newest.round_num,
            )
            told = self.newest.left_out
            found = replace(self.newest, round_num=limit - 1, left_out=replace(told, ahead=told.ahead + 1))
            self.keep(found)
        elif found.round_num < uncounted_from - 1:
            log.warning(
                "the coordinator counted rows that this client's state does not know; they are learned again",
                round_num=round_num,
                newest=found.round_num,
                counted=uncounted_from - 1,
            )
            found = replace(found, left_out=replace(found.left_out, behind=found.left_out.behind + 1))
        return found

    def _on_disk(self, path: Path) -> list[ClientState]:
        """All states of the file."""
        kept: list[ClientState] = []
        for (body,) in Journal(path, _FRAMING).read() if path.is_file() else ():
            kept = _with(kept, _decode(body))
        return kept

    def touch(self, state: ClientState) -> None:
        """Keep in memory what changed without a row being counted."""
        if self._kept and self._kept[-1].round_num == state.round_num:
            self._kept[-1] = state
        elif not self._kept and state.round_num == 0:
            self._start = state

    def keep(self, state: ClientState) -> None:
        """Keep a state in place of the oldest; states of its round or later are dropped."""
        if self._path is not None:
            if self._journal is None or self._journal.num_bytes > MAX_FILE_BYTES:
                self._journal = self._fresh_journal(self._path)
            self._journal.add(_record(state))
        self._remember(state)

    def _remember(self, state: ClientState) -> None:
        self._kept = _with(self._kept, state)[-KEPT_STATES:]

    def _fresh_journal(self, path: Path) -> Journal:
        """A journal with the last states of the one there, in its place."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        records = list(map(_record, self._on_disk(path)))
        sizes = np.cumsum([len(record) for record in reversed(records)])
        fit = max(int((sizes <= MAX_FILE_BYTES // 2).sum()), KEPT_STATES)
        # Durable, so that a loss of power costs at most the states of the last seconds, whose rows are then read again.
        files.replace(path, b"".join(records[-fit:]), durable=True, mode=0o600)
        return Journal(path, _FRAMING)


def _with(kept: list[ClientState], state: ClientState) -> list[ClientState]:
    """With a state in place of those of its round or later."""
    return [*(s for s in kept if s.round_num < state.round_num), state]


def _before(kept: list[ClientState], limit: int, start: ClientState) -> ClientState | None:
    """The newest state before a round; None where those that are kept do not reach so far back."""
    found = next((s for s in reversed(kept) if s.round_num < limit), None)
    if found is None and (not kept or kept[0].after == 0 or kept[0].round_num <= 1 or limit <= 1):
        return start
    return found


def has_state(folder: Path) -> bool:
    """Whether a job has left states in a folder."""
    return (folder / STATE_FILE).is_file()


def take_over(former: Path, folder: Path) -> None:
    """Begin with the states of a former job, positions in the stream included; once, for what is there stays.

    Raises:
        OSError: The disk is full, or gone.
    """
    if has_state(folder):
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace(folder / STATE_FILE, (former / STATE_FILE).read_bytes(), durable=True, mode=0o600)


def _record(state: ClientState) -> bytes:
    arrays = {f"learner.{name}": array for name, array in state.learner.to_arrays().items()}
    arrays |= {f"reply.{name}": np.asarray(array) for name, array in state.reply.items()}
    arrays["theta"] = state.theta
    if state.waiting:
        arrays["waiting.x"] = np.stack([w.x for w in state.waiting.values()])
        arrays["waiting.told"] = np.array([w.told for w in state.waiting.values()])
    facts = {
        "round": state.round_num,
        "after": state.after,
        "request": state.request,
        "position": dict(state.position),
        "left_out": asdict(state.left_out),
        "version": state.version,
        "waiting": list(state.waiting),
        "arrays": [(name, array.dtype.str, array.shape) for name, array in arrays.items()],
    }
    head = json.dumps(facts).encode()
    return _FRAMING.pack(
        b"".join([len(head).to_bytes(4, "little"), head, *(array.tobytes() for array in arrays.values())])
    )


def _decode(body: bytes) -> ClientState:
    at = 4 + int.from_bytes(body[:4], "little")
    facts: dict[str, Any] = json.loads(body[4:at])
    arrays: dict[str, Array] = {}
    for name, dtype, shape in facts["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(body, np.dtype(dtype), count, at).reshape(shape).copy()
        at += arrays[name].nbytes
    waiting = {
        key: Waiting(arrays["waiting.x"][i], float(arrays["waiting.told"][i])) for i, key in enumerate(facts["waiting"])
    }
    return ClientState(
        round_num=facts["round"],
        after=facts.get("after", -1),
        request=facts["request"],
        position=facts["position"],
        left_out=LeftOut(**facts.get("left_out", {"faulty": facts.get("skipped", 0)})),  # formerly one number
        learner=Learner.from_arrays(_part(arrays, "learner.")),
        theta=arrays["theta"],
        version=facts["version"],
        waiting=waiting,
        reply=_part(arrays, "reply."),
    )


def _part(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
