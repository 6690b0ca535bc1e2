"""A client daemon that kills itself with SIGKILL at a chosen point of a chosen task, once; run as a process.

python -m kernfed_testing.crashes.killed_client POINT TASK_END LOG run ...

POINT is `computing` (in mid-step), `stored` (the reply is on disk, not sent), `acknowledged` (the coordinator has it,
and this client has not read so) or `never`. TASK_END is the end of the task's id, or is ahead of its last `/`.
Every computation that begins appends its task id to the file LOG.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kernfed_client.cli import main
from kernfed_client.daemon.answering import Answering
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.daemon.tasks import TaskRunner


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(point: str, task_end: str, log: Path) -> None:
    run, put, acknowledged = TaskRunner._run, ReplyStore.put, Answering.acknowledged

    def meant(task_id: str) -> bool:
        return task_id.endswith(task_end) or task_id.rpartition("/")[0].endswith(task_end)

    def counted_run(self: TaskRunner, task: Any, request: Any) -> Any:
        with log.open("a") as file:
            file.write(f"{task.task_id}\n")
        if point == "computing" and meant(task.task_id):
            _die()
        return run(self, task, request)

    def put_and_die(self: ReplyStore, task: Any, payload: Any, compute_s: float) -> None:
        put(self, task, payload, compute_s)
        if point == "stored" and meant(task.task_id):
            _die()

    def die_at_acknowledgement(self: Answering, ack: Any) -> None:
        if point == "acknowledged" and meant(ack.task_id):
            _die()
        acknowledged(self, ack)

    TaskRunner._run = counted_run  # type: ignore[method-assign]  # for the life of this process
    ReplyStore.put = put_and_die  # type: ignore[method-assign]  # for the life of this process
    Answering.acknowledged = die_at_acknowledgement  # type: ignore[method-assign]  # for the life of this process


if __name__ == "__main__":
    _arm(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.argv = ["kernfed-client", *sys.argv[4:]]
    main()
