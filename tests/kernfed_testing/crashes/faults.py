"""Faults that a federation of processes has to outlast: kills, cuts, full disks, clocks, torn files, older backups.

After each fault every process runs again, every disk has space and every folder is in its place, so that the job that
was under way goes on. A fault says what it may take from a job, which then may end otherwise, if it says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernfed_client.daemon.state_mark import StateMark
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.postgres import Cluster
from kernfed_testing.machine.proxy import Direction
from kernfed_testing.machine.shifted_clock import FILE as CLOCK

DISK_BYTES = 192 << 20
_STEPS_S = (3600, -3600, 86_400, 20, -20)
"""Jumps of a wall clock; a certificate is not valid yet when it goes back by an hour."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks, or several things at once."""

    name: str
    inflict: Callable[[], Awaitable[None]]
    planned: bool = False
    """Whether nothing breaks, as when an operator restarts a side: it does not count."""
    may_tell: bool = False
    """Whether the job may end with another model, if it says why."""
    may_fail: bool = False
    """Whether the job may fail, if it says why."""


class Faults:
    """The faults of a federation of processes."""

    def __init__(self, fed: Federation, cluster: Cluster | None = None) -> None:
        """Take a federation that is up.

        Args:
            fed: Its clients have proxies.
            cluster: Where its coordinator's database is; None: it is a file in the data folder.
        """
        self._fed = fed
        self._cluster = cluster
        self._names = sorted(fed.clients)
        self._backups: dict[str, Path] = {}
        self._mounted: list[Path] = []
        self.random = random.Random()
        self._pauses = random.Random()

    # Surroundings.

    async def give_disks(self) -> bool:
        """Put each side's folder on a small disk of its own; False where this user may mount none."""
        await self._down(*self._all())
        for folder in (self._fed.root / "data", *(self._state(name) for name in self._names)):
            kept = folder.with_name(f"{folder.name}.moved")
            _copy(folder, kept)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(folder)]
            if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
                self._mounted.append(folder)
                _copy(kept, folder)
            shutil.rmtree(kept)
        await self._up(*self._all())
        return bool(self._mounted)

    def take_disks_away(self) -> None:
        """Unmount them."""
        for folder in self._mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)

    def forget_backups(self) -> None:
        """Backups of a job that is over are of no use, nor is what it left at the clients."""
        for folder in self._backups.values():
            shutil.rmtree(folder)
        self._backups.clear()
        for name in self._names:
            for job in self._state(name).glob("jobs/*"):
                shutil.rmtree(job)

    # Draws.

    def draw(self, seed: str) -> Fault:
        """A fault; the same for the same seed, but for backups, of which there must be one to go back to."""
        draw = self.random = random.Random(seed)
        self._pauses = random.Random(f"{seed} pauses")
        name, other = draw.sample(self._names, 2)
        side, peer = draw.choice([("coordinator", name), (name, "coordinator"), (name, other)])
        kinds: list[tuple[int, Callable[[], Fault]]] = [
            (3, lambda: self._line(name)),
            (2, lambda: Fault(f"kill {side}", lambda: self._kill(side))),
            (2, lambda: Fault(f"restart {side}", lambda: self._restart(side), planned=True)),
            (3, lambda: Fault(f"kill {side} and {peer}", lambda: self._kill(side, peer))),
            (1, lambda: Fault("kill all", lambda: self._kill(*self._all()))),
            (2, lambda: Fault(f"stop {side} for a while", lambda: self._stall(side))),
            (2, lambda: Fault(f"clock of {side} jumps", lambda: self._clock(side))),
            (1, lambda: Fault(f"clock of {side} jumps, kill {side}", lambda: self._clock(side, killed=True))),
            (2, lambda: Fault(f"tear files of {name}", lambda: self._tear(name), may_tell=True)),
            (2, lambda: self._coordinator_goes_back()),
            (2, lambda: self._client_goes_back(name)),
            (1, lambda: self._both_go_back(name)),
            (1, lambda: Fault("lose pki, kill coordinator", self._lose_pki)),
            (1, lambda: Fault(f"lose identity of {name}, kill {name}", lambda: self._lose_identity(name))),
            (1, lambda: Fault(f"lose state of {name}", lambda: self._lose_state(name), may_tell=True)),
            (1, lambda: Fault("lose uploads, kill coordinator", self._lose_uploads, may_fail=True)),
        ]
        if self._mounted:
            kinds.append((3, lambda: Fault(f"disk of {side} full, kill {peer}", lambda: self._full(side, peer))))
        if self._cluster is not None:
            kinds.append((3, lambda: Fault("kill postgres", self._kill_postgres)))
            kinds.append((2, lambda: Fault(f"kill postgres and {side}", lambda: self._kill_postgres(side))))
            kinds.append((2, lambda: Fault("fail over postgres", self._fail_over)))
        [make] = draw.choices([make for _, make in kinds], [weight for weight, _ in kinds])
        return make()

    def lose_checkpoint(self) -> Fault:
        """The file of the last checkpoint is gone."""

        async def lose() -> None:
            await self._down("coordinator")
            for path in (self._fed.root / "data" / "checkpoints").glob("*"):
                path.unlink()
            await self._up("coordinator")

        return Fault("lose checkpoint, kill coordinator", lose, may_fail=True)

    def _line(self, name: str) -> Fault:
        line, draw = self._fed.proxies[name], self.random
        direction = draw.choice(list(Direction))
        num_bytes = draw.randrange(0, 20_000)

        async def cut() -> None:
            line.cut()

        async def cut_in_mid_transfer() -> None:
            line.cut_after(direction, num_bytes)

        async def half_close() -> None:
            line.half_close(direction)

        async def lose_a_direction() -> None:
            line.stall(direction)
            await self._pause(1.0, 3.0)
            line.resume()

        return draw.choice(
            [
                Fault(f"cut line of {name}", cut),
                Fault(f"cut {direction.value} of {name} at {num_bytes}", cut_in_mid_transfer),
                Fault(f"half-close {direction.value} of {name}", half_close),
                Fault(f"lose {direction.value} of {name}", lose_a_direction),
            ]
        )

    # Processes.

    async def _pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._pauses.uniform(least_s, most_s))

    def _all(self) -> list[str]:
        return ["coordinator", *self._names]

    def _state(self, name: str) -> Path:
        return self._fed.client_folder(name) / "state"

    async def _down(self, *sides: str) -> None:
        await asyncio.gather(*(self._node(side).kill() for side in sides))

    async def _up(self, *sides: str) -> None:
        for side in sides:
            await (self._fed.start_coordinator() if side == "coordinator" else self._fed.clients[side].start())

    def _node(self, side: str) -> Any:
        return self._fed.coordinator if side == "coordinator" else self._fed.clients[side]

    async def _kill(self, *sides: str) -> None:
        await self._down(*sides)
        for side in self._pauses.sample(sides, len(sides)):
            await self._pause(0.0, 1.0 / len(sides))
            await self._up(side)

    async def _restart(self, side: str) -> None:
        await self._node(side).stop()
        await self._up(side)

    async def _stall(self, side: str) -> None:
        pid = self._node(side).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await self._pause(0.5, 4.5)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _clock(self, side: str, *, killed: bool = False) -> None:
        folder = self._fed.root if side == "coordinator" else self._fed.client_folder(side)
        (folder / CLOCK).write_text(str(self._pauses.choice(_STEPS_S)))
        try:
            if killed:
                await self._down(side)
                await self._node(side).start()  # a coordinator whose certificate is not valid yet says so, and ends
            await self._pause(0.5, 2.0)
        finally:
            (folder / CLOCK).unlink()
        if killed:
            await self._down(side)
            await self._up(side)

    # Folders.

    async def _full(self, side: str, peer: str) -> None:
        folder = self._fed.root / "data" if side == "coordinator" else self._state(side)
        filler = folder / "filler"
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while True:
                os.posix_fallocate(file.fileno(), file.seek(0, 2), 1 << 20)
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))
        try:
            await self._pause(0.0, 0.5)
            await self._kill(peer)
            await self._pause(0.0, 1.5)
        finally:
            filler.unlink()

    async def _tear(self, name: str) -> None:
        await self._down(name)
        state = self._state(name)
        (state / "audit.end").write_bytes(b"")  # which a loss of power tears too; a line that lacks is else a cut
        for path in (state / "audit.jsonl", *state.glob("outbox/*/journal"), *state.glob("jobs/*/online/rounds.state")):
            size = path.stat().st_size if path.exists() else 0
            if size:
                os.truncate(path, size - self._pauses.randrange(0, min(size, 30)))
        await self._up(name)

    def _coordinator_goes_back(self) -> Fault:
        async def restore() -> None:
            await self._down("coordinator")
            await self._put_back("coordinator", self._books())
            await self._pause(0.0, 0.5)
            await self._up("coordinator")

        async def back_up() -> None:
            await self._fed.coordinator.stop()
            await self._keep("coordinator", self._books())
            await self._up("coordinator")

        if "coordinator" in self._backups:
            return Fault("restore coordinator from backup", restore)
        return Fault("back up coordinator", back_up, planned=True)

    def _books(self) -> list[Path]:
        data = self._fed.root / "data"
        return [data] if self._cluster is None else [data, self._cluster.folder / "data"]

    def _client_goes_back(self, name: str) -> Fault:
        async def restore() -> None:
            await self._down(name)
            await self._put_back(name, [self._state(name)])
            await self._up(name)

        async def back_up() -> None:
            await self._fed.clients[name].stop()
            await self._keep(name, [self._state(name)])
            await self._up(name)

        if name in self._backups:
            return Fault(f"restore {name} from backup", restore, may_tell=True)
        return Fault(f"back up {name}", back_up, planned=True)

    def _both_go_back(self, name: str) -> Fault:
        """The books of both sides are put back, each those of its own day; until there are some, they are kept."""

        async def restore() -> None:
            sides = ("coordinator", name)
            await self._down(*sides)
            await self._put_back("coordinator", self._books())
            await self._put_back(name, [self._state(name)])
            for side in self._pauses.sample(sides, len(sides)):
                await self._up(side)

        if "coordinator" not in self._backups:
            return self._coordinator_goes_back()
        if name not in self._backups:
            return self._client_goes_back(name)
        return Fault(f"restore coordinator and {name} from backups", restore, may_tell=True)

    async def _keep(self, side: str, folders: Sequence[Path]) -> None:
        backup = self._backups[side] = self._fed.root / f"backup-{side}"
        with self._database_stopped(side):
            for i, folder in enumerate(folders):
                await asyncio.to_thread(_copy, folder, backup / str(i))

    async def _put_back(self, side: str, folders: Sequence[Path]) -> None:
        with self._database_stopped(side):
            for i, folder in enumerate(folders):
                await asyncio.to_thread(_empty, folder)
                await asyncio.to_thread(_copy, self._backups[side] / str(i), folder)

    @contextlib.contextmanager
    def _database_stopped(self, side: str) -> Iterator[None]:
        if side != "coordinator" or self._cluster is None:
            yield
            return
        self._cluster.stop()
        yield
        self._cluster.start()

    async def _lose_pki(self) -> None:
        await self._without(self._fed.root / "pki", "coordinator")

    async def _lose_identity(self, name: str) -> None:
        await self._without(self._fed.client_folder(name) / "identity", name)

    async def _without(self, folder: Path, side: str) -> None:
        """Move a folder away and kill the side that needs it: it must refuse to start, and start once it is back."""
        away = folder.with_name(f"{folder.name}.away")
        folder.rename(away)
        try:
            await self._pause(0.0, 1.0)
            node = self._node(side)
            await node.kill()
            await node.start()
            async with asyncio.timeout(LIMIT_S):
                assert await node.wait() != 0, f"{side} starts without {folder.name}"
            await node.kill()
        finally:
            away.rename(folder)
        await self._up(side)

    async def _lose_state(self, name: str) -> None:
        await self._down(name)
        await asyncio.to_thread(_empty, self._state(name))
        StateMark(self._fed.client_folder(name) / "identity", self._state(name)).accept()
        await self._up(name)

    async def _lose_uploads(self) -> None:
        uploads = self._fed.root / "data" / "uploads"
        await self._down("coordinator")
        for path in uploads.glob("*"):
            path.unlink()
        await self._up("coordinator")

    async def _fail_over(self) -> None:
        assert self._cluster is not None
        await asyncio.to_thread(self._cluster.fail_over)

    async def _kill_postgres(self, *sides: str) -> None:
        assert self._cluster is not None
        self._cluster.kill()
        await self._down(*sides)
        await self._pause(0.0, 1.0)
        self._cluster.start()
        await self._up(*sides)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with its owners, as a backup does."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True, capture_output=True)


def _empty(folder: Path) -> None:
    """Remove what is in a folder, which may be a disk of its own."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
