"""A coordinator that kills itself with SIGKILL at the point that KERNFED_CRASH_AT names; run as a process.

KERNFED_CRASH_AT=POINT python -m kernfed_testing.crashes.crashing_coordinator run ...

Points are the keys of `POINTS`; those within a round are taken in round 2. Any other is the name of a step: all answers
to it are there, and nothing came of them yet. Without the variable nothing is different from
`python -m kernfed_server`, but that no report is drawn, which takes seconds.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernfed import files
from kernfed.files import Part
from kernfed_server.__main__ import main
from kernfed_server.federation.open_call import OpenCall
from kernfed_server.jobs.tasks import task as job_task
from kernfed_server.keeping import artifacts, checkpoints, store
from kernfed_server.keeping.store import Store

ROUND = 2


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _put(owner: Any, name: str, stand_in: Callable[..., Any]) -> None:
    """Have the owner call a stand-in from now on, until the process dies."""
    setattr(owner, name, stand_in)


def _accepted() -> None:
    """The job is in the store, and the operator has no answer yet."""
    submit = Store.submit

    async def submit_and_die(self: Store, *arguments: Any) -> Any:
        await submit(self, *arguments)
        _die()

    _put(Store, "submit", submit_and_die)


def _half_the_replies() -> None:
    """Some clients have answered, others not."""
    on_message = OpenCall.on_message

    def count_and_die(self: OpenCall, client: str, *arguments: Any) -> None:
        on_message(self, client, *arguments)
        if self._call.round_num == ROUND and len(self.outcomes) >= len(self.clients) // 2:
            _die()

    _put(OpenCall, "on_message", count_and_die)


def _all_in() -> None:
    """Every reply has been accepted, and none is added to the others yet."""
    result = OpenCall.result

    async def result_and_die(self: OpenCall) -> Any:
        outcomes = await result(self)
        if self._call.round_num == ROUND:
            _die()
        return outcomes

    _put(OpenCall, "result", result_and_die)


def _answers_in(step: str) -> None:
    """Every answer to a step has been accepted, and nothing came of them."""
    result = OpenCall.result

    async def result_and_die(self: OpenCall) -> Any:
        outcomes = await result(self)
        if self._call.request.step == step:
            _die()
        return outcomes

    _put(OpenCall, "result", result_and_die)


def _aggregated() -> None:
    """The round's state is there, in memory alone."""
    save = Store.save_checkpoint

    async def die_instead(self: Store, info: Any, checkpoint: Any, *arguments: Any) -> None:
        if checkpoint.round_num == ROUND:
            _die()
        await save(self, info, checkpoint, *arguments)

    _put(Store, "save_checkpoint", die_instead)


def _checkpoint_half_written() -> None:
    """Half of the file's bytes are on the disk."""
    keep = Part.keep

    def keep_half(part: Part, *, durable: bool) -> None:
        if part.target.name.split(".")[-3:-2] == [str(ROUND)] and part.target.suffix == checkpoints.SUFFIX:
            part.file.truncate(part.file.tell() // 2)
            _die()
        keep(part, durable=durable)

    _put(Part, "keep", keep_half)


def _checkpoint_not_named() -> None:
    """The file is whole, and no row tells of it."""
    write = checkpoints.write_checkpoint

    def write_and_die(folder: Path, job_id: str, checkpoint: Any) -> tuple[str, str]:
        written = write(folder, job_id, checkpoint)
        if checkpoint.round_num == ROUND:
            _die()
        return written

    _put(store, "write_checkpoint", write_and_die)


def _not_announced() -> None:
    """The round is closed in the store; no client and no watcher has heard of it."""
    save = Store.save_checkpoint

    async def save_and_die(self: Store, info: Any, checkpoint: Any, *arguments: Any) -> None:
        await save(self, info, checkpoint, *arguments)
        if checkpoint.round_num == ROUND:
            _die()

    _put(Store, "save_checkpoint", save_and_die)


def _artifacts_half_written() -> None:
    """Some of the artifacts are written, aside."""
    write = artifacts.write_folder

    def write_and_die(folder: Path, *arguments: Any) -> None:
        write(folder, *arguments)
        (folder / "model.safetensors").unlink()
        _die()

    _put(job_task, "write_folder", write_and_die)


def _job_not_ended() -> None:
    """The artifacts are in place, and the job is still noted as running."""
    move = files.move_folder

    def move_and_die(made: Path, folder: Path, *, over: bool) -> None:
        move(made, folder, over=over)
        _die()

    _put(files, "move_folder", move_and_die)


POINTS: dict[str, Callable[[], None]] = {
    "accepted": _accepted,
    "half-the-replies": _half_the_replies,
    "all-in": _all_in,
    "aggregated": _aggregated,
    "checkpoint-half-written": _checkpoint_half_written,
    "checkpoint-not-named": _checkpoint_not_named,
    "not-announced": _not_announced,
    "artifacts-half-written": _artifacts_half_written,
    "job-not-ended": _job_not_ended,
}


async def _no_report(*_: object) -> str:
    return ""


if __name__ == "__main__":
    _put(job_task, "render_report", _no_report)
    if point := os.environ.get("KERNFED_CRASH_AT"):
        POINTS.get(point, functools.partial(_answers_in, point))()
    main()
