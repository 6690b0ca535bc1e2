"""What a client keeps of an online job from round to round: on disk, whole, for the last rounds.

After a crash of the client the newest state is read back, and a task that is asked again gets the answer that is kept
with it. A coordinator that lost the round it had open, and the one it had closed last, finds the state before both. A
state is one file, written aside and moved into place; a file that cannot be read counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from kernfed.messages.base import Array
from kernfed.online_learner import Learner
from kernfed_client.raw_table import Floats
from kernfed_client.streams import Position

log = structlog.get_logger(__name__)

KEPT_STATES = 3
"""After the open round, the closed one before it, and the one before that."""

MAX_WAITING = 10_000
"""Rows that may wait for their target; the oldest is given up for one more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row that was predicted and has no target yet."""

    x: Floats
    """Scaled, (P,)."""
    told: float
    """What was predicted, in the data's units."""


@dataclass(frozen=True, slots=True)
class ClientState:
    """A client after a round. N kernels, F features each."""

    round_num: int
    """Last round whose rows are counted here; 0: none."""
    request: str
    """Digest of what that round asked."""
    position: Position
    """How far the stream was read."""
    num_skipped: int
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
        return ClientState(
            self.round_num,
            self.request,
            self.position,
            self.num_skipped,
            self.learner,
            theta,
            version,
            self.waiting,
            self.reply,
        )


class StateKeeper:
    """The states of the last rounds; in memory, and on disk where there is a folder."""

    def __init__(self, start: ClientState, folder: Path | None) -> None:
        """Read back what an earlier life kept.

        Args:
            start: Before the first round.
            folder: For the files; None: they are not needed beyond this process.
        """
        self._start = start
        self._folder = folder
        found = [_read(path) for path in self._paths()] if folder is not None else []
        self._kept = sorted((s for s in found if s is not None), key=lambda s: s.round_num)
        if self._kept:
            log.info("state of a stream read back", round_num=self._kept[-1].round_num)

    @property
    def newest(self) -> ClientState:
        """After the last round."""
        return self._kept[-1] if self._kept else self._start

    def before(self, round_num: int) -> ClientState:
        """The newest state before a round; where none is kept so far back, the newest there is."""
        earlier = [s for s in self._kept if s.round_num < round_num]
        if earlier:
            return earlier[-1]
        if not self._kept or self._kept[0].round_num <= 1:
            return self._start
        log.warning(
            "the coordinator fell back further than this client keeps states; going on from the newest",
            round_num=round_num,
            newest=self.newest.round_num,
        )
        return self.newest

    def touch(self, state: ClientState) -> None:
        """Keep in memory what changed without a row being counted."""
        if self._kept and self._kept[-1].round_num == state.round_num:
            self._kept[-1] = state
        elif not self._kept and state.round_num == 0:
            self._start = state

    def keep(self, state: ClientState) -> None:
        """Keep a state in place of the oldest; states of its round or later are dropped."""
        earlier = [s for s in self._kept if s.round_num < state.round_num][1 - KEPT_STATES :]
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._path(state.round_num)
            part = path.with_suffix(".part")
            part.write_bytes(_encode(state))
            os.replace(part, path)
            wanted = {path, *(self._path(s.round_num) for s in earlier)}
            for old in {self._path(s.round_num) for s in self._kept} - wanted:
                old.unlink(missing_ok=True)
        self._kept = [*earlier, state]

    def _path(self, round_num: int) -> Path:
        assert self._folder is not None  # noqa: S101  # asked only where there is one
        return self._folder / f"round-{round_num}.state"

    def _paths(self) -> list[Path]:
        assert self._folder is not None  # noqa: S101  # as above
        return sorted(self._folder.glob("round-*.state")) if self._folder.is_dir() else []


def _encode(state: ClientState) -> bytes:
    from safetensors.numpy import save

    arrays = {f"learner.{name}": array for name, array in state.learner.to_arrays().items()}
    arrays |= {f"reply.{name}": np.asarray(array) for name, array in state.reply.items()}
    arrays["theta"] = state.theta
    if state.waiting:
        arrays["waiting.x"] = np.stack([w.x for w in state.waiting.values()])
        arrays["waiting.told"] = np.array([w.told for w in state.waiting.values()])
    facts = {
        "round": state.round_num,
        "request": state.request,
        "position": dict(state.position),
        "skipped": state.num_skipped,
        "version": state.version,
        "waiting": list(state.waiting),
    }
    data: bytes = save({k: np.ascontiguousarray(a) for k, a in arrays.items()}, {"facts": json.dumps(facts)})
    return hashlib.blake2b(data, digest_size=16).digest() + data


def _read(path: Path) -> ClientState | None:
    try:
        content = path.read_bytes()
        digest, data = content[:16], content[16:]
        if hashlib.blake2b(data, digest_size=16).digest() != digest:
            raise ValueError("digest")
        return _decode(data)
    except (OSError, ValueError, KeyError) as err:
        log.warning("a kept state of a stream cannot be read and is left aside", file=path.name, error=str(err))
        path.unlink(missing_ok=True)
        return None


def _decode(data: bytes) -> ClientState:
    from safetensors.numpy import load

    length = int.from_bytes(data[:8], "little")
    facts: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["facts"])
    arrays: dict[str, Array] = load(data)
    keys = facts["waiting"]
    waiting = {key: Waiting(arrays["waiting.x"][i], float(arrays["waiting.told"][i])) for i, key in enumerate(keys)}
    return ClientState(
        round_num=facts["round"],
        request=facts["request"],
        position=facts["position"],
        num_skipped=facts["skipped"],
        learner=Learner.from_arrays(_part(arrays, "learner.")),
        theta=arrays["theta"],
        version=facts["version"],
        waiting=waiting,
        reply=_part(arrays, "reply."),
    )


def _part(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
