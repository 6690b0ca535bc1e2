"""`kernfed.simulate`: a job on rows at hand, in this process; no sockets, and no files that stay."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import structlog
from pydantic import ValidationError

from kernfed.cli.job_text import metrics_text
from kernfed.cli.output import log_to_stderr
from kernfed.errors import ConfigError, KernfedError, UnknownArtifactError, UnknownClientError
from kernfed.federation.events import JobEvent
from kernfed.jobs.client_models import SiteNetworkSection
from kernfed.jobs.named_files import attach_files
from kernfed.models.base import Model
from kernfed.models.class_values import OWN, class_values
from kernfed.models.estimator import Estimator, Labels, estimator
from kernfed.python.apart import run_apart, run_beside
from kernfed.python.job import Job, as_job
from kernfed.python.results import Results, Round, round_of
from kernfed_client.models.kept_models import load_kept_model
from kernfed_simulation.federation import with_networks
from kernfed_simulation.in_memory import from_frames
from kernfed_simulation.progress import Progress
from kernfed_simulation.run import Simulated
from kernfed_simulation.run import simulate as run_job


class Simulation(Results):
    """Results of a simulated job."""

    def __init__(
        self, done: Simulated, artifacts: Mapping[str, bytes], own_models: Mapping[str, Model], values: list[Any]
    ) -> None:
        """Hold what is left.

        Args:
            done: What came of the job.
            artifacts: Its files, by name.
            own_models: Models that clients keep to themselves, by client.
            values: Of the target's classes, in its own type; empty: not known.
        """
        self._done = done
        self._artifacts = dict(artifacts)
        self._own_models = dict(own_models)
        self._values = values

    @property
    def error(self) -> KernfedError | None:
        """Why the job failed; None: it did not."""
        return self._done.error

    @property
    def clients(self) -> tuple[str, ...]:
        """Clients that took part, sorted."""
        return self._done.info.clients

    def artifact(self, name: str) -> bytes:
        """See `Results`."""
        if name not in self._artifacts:
            raise UnknownArtifactError(
                f"no artifact {name!r}; the job's artifacts: {', '.join(sorted(self._artifacts))}"
            )
        return self._artifacts[name]

    def model(self, client: str | None = None, *, labels: Labels = OWN, device: str = "cpu") -> Estimator:
        """The job's global model as a scikit-learn estimator, or the model that a client keeps to itself.

        Args:
            client: Whose model; unset: the global one.
            labels: As of `kernfed.load_model`; `own` is the type that the target has in the rows given.
            device: Where to compute.

        Raises:
            DataError: The job left no global model.
            UnknownClientError: The client keeps none.
        """
        if client is None:
            found = super().model(device=device).model
        elif client in self._own_models:
            found = self._own_models[client]
        else:
            known = ", ".join(self._own_models) or "none: the method leaves a global model alone"
            raise UnknownClientError(f"no model of client {client!r}; models are kept by: {known}")
        return estimator(found, labels=self._labels(found) if labels == OWN else labels, device=device)

    def rounds(self) -> Iterator[Round]:
        """See `Results`."""
        closed = {r.number: r for e in self._done.events if (r := round_of(e.event)) is not None}
        return iter([closed[number] for number in sorted(closed)])

    def save(self, folder: Path | str) -> Path:
        """Write the job's files to a folder, as `kernfed-simulate --out` leaves them, clients' own models apart.

        Raises:
            ConfigError: The folder is there already, or cannot be made.
        """
        place = Path(folder)
        try:
            place.mkdir(parents=True)
            for name, content in self._artifacts.items():
                (place / name).write_bytes(content)
        except OSError as err:
            raise ConfigError(f"{place}: cannot be written: {err.strerror}; give a new folder") from err
        return place

    def __repr__(self) -> str:
        """Name, state, rounds and last metrics, in a line."""
        info = self._done.info
        told = f": {self.error}" if self.error else f"; {metrics_text(self._done.final)}"
        return f"<kernfed.Simulation {info.name}: {info.state.value} after {info.round_num} rounds{told}>"

    def _labels(self, model: Model) -> Labels:
        try:
            class_values(model.classes, self._values)
        except ConfigError:
            return OWN
        return self._values


def simulate(
    job: Job | Path | str,
    clients: Mapping[str, Any],
    *,
    check: bool = True,
    progress: bool | None = None,
    networks: Mapping[str, str] | None = None,
) -> Simulation:
    """Run a job on rows in this process: the steps and workflows of a real federation, and no file that stays.

    It works in scripts, and in notebooks and other places where an event loop runs. Async code awaits
    `kernfed.simulate_async` instead, which lets its loop go on.

    Args:
        job: A `kernfed.Job`, or the path of a job file.
        clients: Rows by client: a data frame (or a dict of columns) with the job's features and target; `(X, y)`, X a
            data frame or an array of the features in their order; or `{"train": ..., "test": ...}` of these. Without
            test rows the job's share is held out.
        check: Whether a job that fails raises its error; else it is the result's `error`.
        progress: Whether to tell of rounds on stderr; unset: where that is a terminal.
        networks: Modules that the job may train, by name, each as `source` in a client file: "torch:package.Module", or
            "torch:__main__.Module" for a class of this script or notebook.

    Raises:
        ConfigError: Job and clients do not fit.
        DataError: Rows do not fit the job; names client, column and row.
        KernfedError: The job failed, by the error's own class.
    """
    asked = as_job(job)
    return run_apart(lambda stop: _simulate(asked, clients, check, progress, stop, networks or {}))


async def simulate_async(
    job: Job | Path | str,
    clients: Mapping[str, Any],
    *,
    check: bool = True,
    progress: bool | None = None,
    networks: Mapping[str, str] | None = None,
) -> Simulation:
    """`simulate` for async code: the loop goes on while a thread computes. Cancelling it ends the job."""
    asked = as_job(job)
    return await run_beside(lambda stop: _simulate(asked, clients, check, progress, stop, networks or {}))


def _simulate(
    job: Job,
    clients: Mapping[str, Any],
    check: bool,
    progress: bool | None,
    stop: threading.Event,
    networks: Mapping[str, str] = MappingProxyType({}),
) -> Simulation:
    if not structlog.is_configured():
        log_to_stderr()  # else every step of every client is told on stdout
    told = Progress(quiet=not (sys.stderr.isatty() if progress is None else progress))
    with TemporaryDirectory(prefix="kernfed-simulate-") as temporary:
        state, left = Path(temporary, "state"), Path(temporary, "left")
        jobs, values = from_frames(clients, job.file, state)
        with_networks(jobs, _sections(networks))
        attached, text, files = attach_files(job.file, job.text, job.folder)
        done = run_job(attached, jobs, text=text, files=files, out=left, listen=_until(stop, told))
        artifacts = {path.name: path.read_bytes() for path in sorted(left.iterdir()) if path.is_file()}
        own = {path.parent.name: load_kept_model(path) for path in sorted(state.glob("*/model"))}
    if check and done.error is not None:
        raise done.error
    return Simulation(done, artifacts, own, values)


def _sections(networks: Mapping[str, str]) -> dict[str, SiteNetworkSection]:
    try:
        return {name: SiteNetworkSection(source=source) for name, source in networks.items()}
    except ValidationError as err:
        raise ConfigError(
            f"networks: {dict(networks)!r:.200}: each is a text like 'torch:package.Module' or 'file:nets.py:Module'"
        ) from err


def _until(stop: threading.Event, listen: Callable[[JobEvent], None]) -> Callable[[JobEvent], None]:
    def told(event: JobEvent) -> None:
        if stop.is_set():
            raise asyncio.CancelledError
        listen(event)

    return told
