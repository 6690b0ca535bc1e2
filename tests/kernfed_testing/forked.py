"""Commands that need torch and its like, each in a process forked from one that has imported them: seconds less apiece.

Such a process has arguments, a folder, output and an exit status of its own, as a fresh one has. That a command imports
what it uses is shown elsewhere, by processes that start from nothing.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib.metadata import entry_points
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from kernfed_testing.limits import LIMIT_S

_LIBRARIES = (
    *("cryptography.x509", "google.protobuf", "jinja2", "pydantic", "rich.console", "sqlalchemy", "structlog", "typer"),
    *("matplotlib.figure", "pandas", "pyarrow", "scipy.linalg", "scipy.optimize", "sklearn.base", "torch", "uvloop"),
    *("kernfed_server.jobs.execute", "kernfed_client.steps.registry"),
)
"""Not grpc, nor what loads it: it reads its environment once, as it is loaded."""

_PACKAGES = ("kernfed", "kernfed_server", "kernfed_client", "kernfed_simulation")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(_LIBRARIES))
_books = threading.Lock()
"""Over starts and exit statuses: whoever starts a process asks for the status of all, and each is told but once."""


def preload(*modules: str) -> None:
    """Have processes forked from one that has imported these too: where all have one environment, as in a soak.

    Call it before the first is started.
    """
    _context.set_forkserver_preload([*_LIBRARIES, *modules])


def run_module(
    name: str, *arguments: object, cwd: Path | None = None, beside: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m NAME ARGUMENTS` to its end.

    Args:
        name: Of the module.
        arguments: Of the command.
        cwd: Where it runs; here where unset.
        beside: A folder of packages that kernfed is loaded beside: its own modules are loaded anew.
    """
    return _run(name, [name, *map(str, arguments)], cwd or Path.cwd(), beside=beside)


def run_command(
    name: str, *arguments: object, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run an installed command to its end, with more of an environment."""
    (command,) = entry_points(group="console_scripts", name=name)
    script = str(Path(sys.executable).with_name(name))
    return _run(command.value, [script, *map(str, arguments)], cwd, environment)


def run_script(path: Path, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python PATH ARGUMENTS` to its end."""
    return _run(path, [str(path), *map(str, arguments)], cwd or Path.cwd())


def _run(
    what: str | Path,
    argv: list[str],
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    beside: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        given = (what, argv, cwd, {**os.environ, **(environment or {})}, out, err, beside)
        process = _context.Process(target=_begin, args=given)
        _start(process)
        in_time = bool(wait([process.sentinel], LIMIT_S))
        if not in_time:
            process.kill()
        code = _status(process)
        process.close()
        if not in_time:
            raise subprocess.TimeoutExpired(argv, LIMIT_S, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(argv, code, out.read_text(), err.read_text())


def _start(process: ForkServerProcess) -> None:
    with _books:
        process.start()


def _status(process: ForkServerProcess) -> int:
    """Exit status of a process that is at its end."""
    with _books:
        process.join()
        assert process.exitcode is not None
        return process.exitcode


class Daemon:
    """`python -m NAME ARGUMENTS` under way; with the methods of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, process: ForkServerProcess, stderr: asyncio.StreamReader) -> None:
        """Follow a process that was started."""
        assert process.pid is not None
        self.pid = process.pid
        self.stderr = stderr
        self._process = process
        self._end = asyncio.ensure_future(self._ended())

    async def _ended(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        return _status(self._process)

    async def wait(self) -> int:
        """Exit status, or minus the signal, once it has ended."""
        return await asyncio.shield(self._end)

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()


async def start_daemon(name: str, *arguments: str, cwd: Path) -> Daemon:
    """Start `python -m NAME ARGUMENTS`, without stdout."""
    loop, stderr = asyncio.get_running_loop(), asyncio.StreamReader()
    reading, writing = multiprocessing.Pipe(duplex=False)
    with reading, writing:
        file = os.fdopen(os.dup(reading.fileno()), "rb", 0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stderr), file)
        given = (name, [name, *arguments], cwd, dict(os.environ), Path(os.devnull), writing)
        process = _context.Process(target=_begin, args=given, daemon=True)
        await asyncio.to_thread(_start, process)
    return Daemon(process, stderr)


def _begin(
    what: str | Path,
    argv: list[str],
    cwd: Path,
    environment: dict[str, str],
    out: Path,
    err: Path | Connection,
    beside: Path | None = None,
) -> None:
    gc.freeze()  # what it was forked with is no garbage, and need not be looked through
    for number, to in ((1, out), (2, err)):
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT) if isinstance(to, Path) else to.fileno()
        os.dup2(descriptor, number)
        os.close(descriptor) if isinstance(to, Path) else to.close()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    sys.path.insert(0, str(what.parent) if isinstance(what, Path) else "")
    if beside is not None:
        sys.path.insert(1, str(beside))
        for name in [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]:
            del sys.modules[name]
    if isinstance(what, Path):
        runpy.run_path(str(what), run_name="__main__")
    elif ":" in what:
        module, _, function = what.partition(":")
        sys.exit(getattr(importlib.import_module(module), function)())
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)
