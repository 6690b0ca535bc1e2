"""Files are there whole or not at all, and a full disk is waited for."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kernfed import files
from kernfed.errors import DiskFullError, StepFailedError
from kernfed.files import DiskWait, Part


class CrashError(Exception):
    """The process ends here."""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was synced, in order; a part by the name that it will have."""
    names: list[str] = []

    def spy(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        names.append(name[1:].rsplit(".", 2)[0] if name.endswith(".part") else name)

    monkeypatch.setattr(os, "fsync", spy)
    return names


def test_a_crash_before_the_move_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old content is there, and what was written beside it goes with the next sweep."""
    path = tmp_path / "state.json"
    files.replace(path, b"old", durable=False)

    def crash(*_: object) -> None:
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        patch.setattr(Part, "close", lambda part: part.file.close())  # a process that is killed cleans up nothing
        with pytest.raises(CrashError):
            files.replace(path, b"new", durable=True)
    [left] = [p for p in tmp_path.iterdir() if p != path]
    assert (path.read_bytes(), left.read_bytes()) == (b"old", b"new")
    assert files.is_part(left)
    assert not files.is_part(path)
    files.remove_parts(tmp_path)
    assert left.exists()  # somebody may be at it still
    os.utime(left, (0, 0))
    files.remove_parts(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def write_half(part: Part) -> None:
    """What a writer does whose disk fills up."""
    part.file.write(b"half")
    raise files.no_space()


def test_a_fault_leaves_the_old_file_alone(tmp_path: Path) -> None:
    """A block that ends in an error removes what it wrote."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"), Part(path) as part:
        write_half(part)
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_bytes() == b"old"


def test_durable_waits_for_file_and_folder(tmp_path: Path, synced: list[str]) -> None:
    """First the content, then the name; without it, for neither."""
    files.replace(tmp_path / "a", b"1", durable=False)
    assert synced == []
    files.replace(tmp_path / "a", b"2", durable=True)
    assert synced == ["a", tmp_path.name]
    assert (tmp_path / "a").read_bytes() == b"2"


def test_a_folder_that_cannot_be_synced_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems sync no folders; any other error is told."""

    def refuse(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    code = errno.EINVAL
    files.sync_folder(tmp_path)
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        files.sync_folder(tmp_path)


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o600, 0o600), (0o644, 0o644)])
def test_permissions(tmp_path: Path, mode: int | None, expected: int) -> None:
    """Those that were asked for, exactly; else what the umask leaves."""
    before = os.umask(0o027)
    try:
        files.replace(tmp_path / "a", b"", durable=False, mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == expected


def test_parts_of_one_target_do_not_meet(tmp_path: Path) -> None:
    """Two writers of one file each have a part of their own; the last that is kept counts."""
    path = tmp_path / "a"
    with Part(path) as first, Part(path) as second:
        first.file.write(b"first")
        second.file.write(b"second")
        second.keep(durable=False)
        first.keep(durable=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """A write that fails names no file by itself; the part does."""
    with pytest.raises(OSError, match="No space left on device") as caught, Part(tmp_path / "model"):
        raise files.no_space()
    assert caught.value.filename == str(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_output_replaces_files_and_nothing_else(tmp_path: Path) -> None:
    """A pipe or a device gets the bytes and stays what it is; a link goes on to name its file."""
    pipe, link, null = tmp_path / "pipe", tmp_path / "link", tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to("file")
    null.symlink_to(os.devnull)
    reader = os.open(pipe, os.O_RDWR)
    for path in (pipe, link, null):
        with files.output(path) as file:
            file.write(b"rows")
    assert os.read(reader, 10) == b"rows"
    os.close(reader)
    assert (tmp_path / "file").read_bytes() == b"rows"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link", "null", "pipe"]
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert Path(os.devnull).is_char_device()


def test_a_folder_moves_once_all_in_it_is_on_the_disk(tmp_path: Path, synced: list[str]) -> None:
    """Files, folders, and last the name; an older folder gives way only where that is wanted."""
    made, folder = tmp_path / f"out{files.NEW}", tmp_path / "out"
    for place in (made, folder):
        (place / "sub").mkdir(parents=True)
        (place / "sub" / "file").write_text(place.name)
    with pytest.raises(OSError, match="not empty"):
        files.move_folder(made, folder, over=False)
    synced.clear()
    files.move_folder(made, folder, over=True)
    assert sorted(synced[:-1]) == sorted(["file", "sub", made.name])
    assert synced[-1] == tmp_path.name
    assert (folder / "sub" / "file").read_text() == made.name
    assert not made.exists()


def test_what_counts_as_full() -> None:
    """By error number, or by the words of SQLite, PostgreSQL and safetensors."""
    assert files.is_full(OSError(errno.EDQUOT, "x"))
    assert files.is_full(files.no_space())
    assert files.is_full(DiskFullError("x"))
    assert files.is_full(RuntimeError("(sqlite3.OperationalError) database or disk is full"))
    assert not files.is_full(OSError(errno.EACCES, "Permission denied"))


class Wait:
    """Faults to come, and all that a wait does about them."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.said: list[str] = []
        self.pauses: list[float] = []

    def attempt(self) -> int:
        if self.faults:
            raise self.faults.pop(0)
        return 7

    async def attempt_async(self) -> int:
        return self.attempt()

    def rule(self, limit_s: float = 60.0) -> DiskWait:
        return DiskWait(
            limit_s,
            cause=lambda err: str(err) if isinstance(err, OSError) else None,
            tell=lambda words, _: self.said.append(words),
            give_up=lambda words, _, waited_s: StepFailedError(f"{words} for {waited_s:.0f} s"),
        )

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)

    async def sleep_async(self, pause_s: float) -> None:
        self.pauses.append(pause_s)


async def blocking(wait: Wait, rule: DiskWait) -> int:
    return files.until_kept(wait.attempt, rule)


async def on_the_loop(wait: Wait, rule: DiskWait) -> int:
    return await files.until_kept_async(wait.attempt_async, rule)


Face = Callable[[Wait, DiskWait], Awaitable[int]]
faces = pytest.mark.parametrize("face", [blocking, on_the_loop])


@faces
async def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch, face: Face) -> None:
    """Each cause is said once, pauses grow up to a limit, and in the end it goes on."""
    full, readonly = files.no_space(), OSError(errno.EROFS, "Read-only file system")
    wait = Wait(*[full] * 12, readonly)
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", wait.sleep)
        patch.setattr(asyncio, "sleep", wait.sleep_async)
        assert await face(wait, wait.rule()) == 7
    assert wait.said == [str(full), str(readonly), ""]
    assert len(wait.pauses) == 13
    assert wait.pauses == sorted(wait.pauses)
    assert (wait.pauses[0], wait.pauses[-1]) == (files.FIRST_PAUSE_S, files.LONGEST_PAUSE_S)


@faces
async def test_a_wait_has_an_end(face: Face) -> None:
    """The error tells the cause and how long it was waited for; another fault is not waited for."""
    wait = Wait(files.no_space())
    with pytest.raises(StepFailedError, match="No space left on device for 0 s"):
        await face(wait, wait.rule(limit_s=0.1))
    wait = Wait(ValueError("a fault of the program"))
    with pytest.raises(ValueError, match="of the program"):
        await face(wait, wait.rule())
    assert wait.said == []


@faces
async def test_what_goes_at_once_says_nothing(face: Face) -> None:
    """There was no wait to tell of."""
    wait = Wait()
    assert await face(wait, wait.rule()) == 7
    assert wait.said == []


def test_an_error_names_the_file_and_not_its_part(tmp_path: Path) -> None:
    """Who tries again reads the same words, by which a wait knows that nothing is new."""
    target = tmp_path / "gone" / "kept"
    said = set()
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as failed:
            files.replace(target, b"x", durable=False)
        said.add(str(failed.value))
    assert said == {f"[Errno 2] No such file or directory: '{target}'"}
