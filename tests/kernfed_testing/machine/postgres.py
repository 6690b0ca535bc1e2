"""A PostgreSQL server of the tests' own, reached by a Unix socket only; from Debian's packages."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from kernfed_testing.limits import LIMIT_S

_ALONE = "-c listen_addresses= -c fsync=off"


class Cluster:
    """A server that runs."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self.folder = folder
        self._numbers = itertools.count(1)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs, as the user `postgres` where the tests run as root, who may not."""
        user = "postgres" if os.geteuid() == 0 else None
        # Output goes to a file: the server inherits it, so that a pipe would not end.
        with (self.folder / "out").open("ab") as out:
            done = subprocess.run(
                (str(self._binaries / program), *arguments),
                user=user,
                group=user,
                extra_groups=() if user else None,
                cwd=self.folder,
                timeout=LIMIT_S,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
                check=False,
            )
        assert done.returncode == 0, (self.folder / "out").read_text(errors="replace")[-2000:]

    def start(self) -> None:
        """Start the server."""
        options = f"-k {self.folder} {_ALONE}"
        try:
            self.run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")
        except AssertionError as err:
            raise AssertionError((self.folder / "log").read_text(errors="replace")[-2000:]) from err

    def stop(self, how: str = "fast") -> None:
        """Stop the server; `immediate` is as a crash."""
        self.run("pg_ctl", "-D", "data", "-w", "-m", how, "stop")

    def kill(self) -> None:
        """SIGKILL to the server, as the kernel does that is out of memory; its children end of themselves."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, signal.SIGKILL)
        while any(map(_alive, [pid, *map(int, children)])):
            time.sleep(0.01)
        # Where nobody collects the exit status of orphans the dead server still looks alive.
        for lock in (self.folder / "data" / "postmaster.pid", self.folder / ".s.PGSQL.5432.lock"):
            lock.unlink(missing_ok=True)

    def fail_over(self) -> None:
        """A second server follows to the last commit, takes over when this one is killed, and has its address then."""
        self.run(
            "pg_basebackup", "-h", str(self.folder), "-U", "kernfed", "-D", "second", "-R", "-c", "fast", "--no-sync"
        )
        self.run("pg_ctl", "-D", "second", "-w", "-l", "log", "-o", f"-k {self.folder} -p 5433 {_ALONE}", "start")
        with psycopg.connect(f"host={self.folder} user=kernfed dbname=postgres", autocommit=True) as first:
            first.execute(
                "ALTER SYSTEM SET synchronous_standby_names = '*'"
            )  # from here on commits wait for the second
            first.execute("SELECT pg_reload_conf()")
            end = time.monotonic() + LIMIT_S
            while first.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone() is None:
                assert time.monotonic() < end, "the second server does not follow"
                time.sleep(0.01)
        self.kill()
        self.run("pg_ctl", "-D", "second", "-w", "promote")
        self.run("pg_ctl", "-D", "second", "-w", "-m", "fast", "stop")
        shutil.rmtree(self.folder / "data")
        (self.folder / "second").rename(self.folder / "data")
        self.start()

    def new_database(self, *options: str) -> str:
        """URL of a new, empty database; options are those of createdb."""
        name = f"kernfed{next(self._numbers)}"
        self.run("createdb", "-h", str(self.folder), "-U", "kernfed", *options, name)
        return f"postgresql+psycopg://kernfed@/{name}?host={self.folder}"


def binaries() -> Path | None:
    """Where PostgreSQL's programs are; Debian keeps them out of PATH."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), default=None)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A server in a folder of its own; its end removes both."""
    found = binaries()
    if found is None:
        assert not os.environ.get("CI"), "CI must test PostgreSQL: apt-get install postgresql"
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    # Not in pytest's folders: the user postgres may not enter them, and a socket's path has at most 107 characters.
    # Beside them, where that is memory: each database is three hundred files, which a disk is slow to remove.
    folder = Path(tempfile.mkdtemp(prefix="kernfed-pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    server = Cluster(found, folder)
    try:
        server.run("initdb", "-D", "data", "-U", "kernfed", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
