"""Commands that need torch and its like, each in a process forked from one that has imported them: seconds less apiece.

Such a process has arguments, a folder, output and an exit status of its own, as a fresh one has. That a command imports
what it uses is shown elsewhere, by processes that start from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 110.0

_LIBRARIES = (
    *("matplotlib.figure", "pandas", "pyarrow", "scipy.linalg", "scipy.optimize", "sklearn.base", "torch"),
    *("cryptography.x509", "google.protobuf", "grpc", "pydantic", "rich.console", "sqlalchemy", "structlog", "typer"),
)

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(_LIBRARIES))


def run_module(name: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m NAME ARGUMENTS` to its end."""
    return _run(name, [name, *map(str, arguments)], cwd or Path.cwd())


def run_script(path: Path, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python PATH ARGUMENTS` to its end."""
    return _run(path, [str(path), *map(str, arguments)], cwd or Path.cwd())


def _run(what: str | Path, argv: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _context.Process(target=_begin, args=(what, argv, cwd, dict(os.environ), out, err))
        process.start()
        process.join(LIMIT_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        if code is None:
            raise subprocess.TimeoutExpired(argv, LIMIT_S, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(argv, code, out.read_text(), err.read_text())


def _begin(what: str | Path, argv: list[str], cwd: Path, environment: dict[str, str], out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    sys.path.insert(0, str(what.parent) if isinstance(what, Path) else "")
    if isinstance(what, Path):
        runpy.run_path(str(what), run_name="__main__")
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)
