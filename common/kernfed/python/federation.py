"""`kernfed.connect`: a federation from a script or a notebook, as its operator.

Calls wait for their answers where one calls, while a thread talks to the coordinator; so they work beside an event loop
too. Each wait has the end that the commands' waits have.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Collection, Coroutine, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeVar

from kernfed.cli.job_text import rounds_text
from kernfed.cli.operator_options import find_identity
from kernfed.errors import ConfigError, JobCancelledError, JobError, error_from_reason
from kernfed.federation.events import JobState
from kernfed.jobs.comparison import JobsCompared
from kernfed.jobs.info import ClientInfo, JobInfo, JobUpdate
from kernfed.models.estimator import Estimator, Labels
from kernfed.pki.identity import Identity
from kernfed.python.comparing import compare
from kernfed.python.job import Job, as_job
from kernfed.python.results import Results, Round, round_of
from kernfed.python.submitting import submit_job
from kernfed.wire.operator_client import OperatorClient
from kernfed.wording import clean

T = TypeVar("T")

_KEPT_BYTES = 1 << 20
"""An artifact of at most so many is fetched once."""
_CLOSE_S = 10.0


class Federation:
    """An operator's line to the coordinator; closed at the end of a `with`, or of the program."""

    def __init__(self, identity: Identity, coordinator: str | None = None, *, timeout_s: float = 30.0) -> None:
        """Start the thread that talks; nothing is dialled yet.

        Args:
            identity: The operator's.
            coordinator: `host:port`; that of the identity where unset.
            timeout_s: For each call.

        Raises:
            ConfigError: No address is known.
        """
        self.name = identity.name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kernfed", daemon=True)
        self._thread.start()
        self._open = True

        async def make() -> OperatorClient:
            return OperatorClient(identity, coordinator, timeout_s=timeout_s)

        try:
            self._operator = self.wait_for(make())
        except BaseException:
            self._stop()
            raise
        atexit.register(self.close)

    def submit(self, job: Job | Path | str) -> Run:
        """Check a job, upload the files that it names, sign it, and queue it.

        Args:
            job: A `kernfed.Job`, or the path of a job file.

        Raises:
            ConfigError: The job is wrong.
            KernfedError: The coordinator refuses it, or cannot be reached; by the error's own class.
        """
        asked = as_job(job)
        info = self.wait_for(submit_job(self._operator, asked.file, asked.text, asked.folder))
        return Run(self, self._operator, info)

    def job(self, job_id: str) -> Run:
        """A job by its id, a beginning of it that no other shares, or its name: the newest of that name.

        Raises:
            UnknownJobError: There is none.
        """
        return Run(self, self._operator, self.wait_for(self._operator.get(job_id)))

    def jobs(self, limit: int = 50) -> list[JobInfo]:
        """Jobs, newest first, at most `limit`."""
        return list(self.wait_for(self._operator.list_jobs(limit)).jobs)

    def compare(self, *jobs: Run | str, metrics: Collection[str] = (), model: str = "") -> JobsCompared:
        """Compare jobs with the first one; waits for their ends.

        Args:
            jobs: Jobs, or what `job` takes; two at least.
            metrics: See `kernfed.compare`.
            model: See `kernfed.compare`.

        Raises:
            UnknownJobError: There is no such job.
            ConfigError: Fewer than two jobs, or a metric that there is not.
            DataError: A job has no scores with errors, or the jobs have nothing in common.
        """
        runs = [self.job(job) if isinstance(job, str) else job for job in jobs]
        return compare({run.job_id: run for run in runs}, metrics=metrics, model=model)

    def clients(self) -> list[ClientInfo]:
        """Clients of the federation, sorted by name: who is connected, with which data sets."""
        return self.wait_for(self._operator.clients())

    def close(self) -> None:
        """End the line; jobs go on. A second time does nothing."""
        if self._open:
            atexit.unregister(self.close)
            try:
                self.wait_for(self._operator.__aexit__(None, None, None))
            finally:
                self._stop()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the thread do work, and wait for it; where the wait is broken off, so is the work.

        Raises:
            ConfigError: The line is closed.
        """
        if not self._open:
            work.close()
            raise ConfigError("this connection is closed; connect again with kernfed.connect")
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def _stop(self) -> None:
        self._open = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        """Who is connected."""
        return f"<kernfed.Federation: operator {self.name}{'' if self._open else ', closed'}>"


class Run(Results):
    """A job at the coordinator. What it leaves is there once it is over: asking for it waits until then."""

    def __init__(self, federation: Federation, operator: OperatorClient, info: JobInfo) -> None:
        """Hold on to a job; `info` is how it was last seen."""
        self._federation = federation
        self._operator = operator
        self._info = info
        self._kept: dict[str, bytes] = {}

    @property
    def job_id(self) -> str:
        """Its id."""
        return self._info.job_id

    @property
    def info(self) -> JobInfo:
        """The job as it is now."""
        if not self._info.state.finished:
            self._info = self._federation.wait_for(self._operator.get(self.job_id))
        return self._info

    def rounds(self, timeout_s: float | None = None) -> Iterator[Round]:
        """Rounds from the first on, as the coordinator tells of them; the iteration ends when the job does.

        Ctrl-C leaves the job running, and says how to come back.

        Args:
            timeout_s: Longest wait for the job's end; unset: as long as the job may take.

        Raises:
            KernfedError: The job failed or was cancelled, by its own error's class.
            UnavailableError: The coordinator stayed away.
            TimeoutError: The time is over; the job goes on.
        """
        last = 0
        for update in self._updates(timeout_s):
            found = None if update.event is None else round_of(update.event.event)
            if found is not None and found.number > last:  # one that a resumed job repeats is told once
                last = found.number
                yield found
        self._raise_if_failed()

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for the end of the job; arguments and errors as of `rounds`."""
        self._finish(timeout_s)
        self._raise_if_failed()
        return self

    def cancel(self) -> JobInfo:
        """Stop the job; what it has reached is kept."""
        self._info = self._federation.wait_for(self._operator.cancel(self.job_id))
        return self._info

    def model(self, *, labels: Labels = "own", device: str = "cpu") -> Estimator:
        """See `Results`; a job that failed raises its own error."""
        self.wait()
        return super().model(labels=labels, device=device)

    def artifact(self, name: str) -> bytes:
        """See `Results`; waits for the end of the job, however it ends."""
        self._finish(None)
        if name not in self._kept:
            with TemporaryDirectory(prefix="kernfed-artifact-") as folder:
                content = self.save(folder, [name])[0].read_bytes()
            if len(content) > _KEPT_BYTES:
                return content
            self._kept[name] = content
        return self._kept[name]

    def save(self, folder: Path | str, names: Iterable[str] = ()) -> list[Path]:
        """Copy the job's files to a folder, their SHA-256 checked; all of them where `names` has none.

        Raises:
            JobError: It has left none yet.
            UnknownArtifactError: It left no file of a name.
        """
        return self._federation.wait_for(self._operator.fetch(self.job_id, Path(folder), names))

    def __repr__(self) -> str:
        """Id, state and rounds as they were last seen."""
        return f"<kernfed.Run {self.job_id}: {self._info.state.value}, rounds {rounds_text(self._info)}>"

    def _finish(self, timeout_s: float | None) -> None:
        if not self._info.state.finished:
            for _ in self._updates(timeout_s):
                pass

    def _updates(self, timeout_s: float | None) -> Iterator[JobUpdate]:
        """What the coordinator tells until the job is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        updates = self._operator.watch(self.job_id)

        async def following() -> JobUpdate | None:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                return await anext(updates, None)

        try:
            while (update := self._federation.wait_for(following())) is not None:
                self._info = update.job or self._info
                yield update
        except (KeyboardInterrupt, TimeoutError) as err:
            err.add_note(f"job {self.job_id} goes on; come back with fed.job({self.job_id!r}), stop it with .cancel()")
            raise
        finally:
            self._federation.wait_for(updates.aclose())

    def _raise_if_failed(self) -> None:
        info = self._info
        if info.state is JobState.CANCELLED:
            raise JobCancelledError(f"job {info.job_id} was cancelled")
        if info.state is JobState.FAILED:
            error = error_from_reason(info.error_reason, f"job {info.job_id} failed: {clean(info.error_message)}")
            raise error if type(error).reason == info.error_reason else JobError(str(error))


def connect(
    identity: Path | str | None = None, coordinator: str | None = None, *, timeout_s: float = 30.0
) -> Federation:
    """Connect to a federation's coordinator as its operator.

    Args:
        identity: Folder of the operator's identity; unset: KERNFED_IDENTITY, else `./pki/operator-*` or
            `~/.kernfed/operator`, as the commands look for it.
        coordinator: `host:port`; the one that the identity names where unset.
        timeout_s: For each call.

    Raises:
        ConfigError: There is no identity, or more than one, or no address.
        AuthError: The identity is damaged, or does not fit.
    """
    given = identity or os.environ.get("KERNFED_IDENTITY")
    loaded = Identity.load(find_identity(Path(given) if given else None), check_dates=False)
    return Federation(loaded, coordinator, timeout_s=timeout_s)
