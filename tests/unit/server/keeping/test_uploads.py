"""Uploaded files: whole or not at all, by digest; a text from a peer never becomes a path."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kernfed.errors import ConfigError, UnavailableError, WireError
from kernfed_server.keeping.uploads import Uploads

CONTENT = b"0123456789" * 100
DIGEST = hashlib.sha256(CONTENT).hexdigest()


async def pieces(content: bytes, read: list[int] | None = None) -> AsyncIterator[bytes]:
    for i in range(0, len(content), 256):
        if read is not None:
            read.append(i)
        yield content[i : i + 256]


async def test_a_file_is_kept_and_not_read_twice(tmp_path: Path) -> None:
    """The second upload of the same digest takes no piece."""
    uploads = Uploads(tmp_path / "uploads")
    assert not await uploads.receive(DIGEST, len(CONTENT), pieces(CONTENT))
    assert uploads.read(DIGEST) == CONTENT
    read: list[int] = []
    assert await uploads.receive(DIGEST, len(CONTENT), pieces(CONTENT, read))
    assert read == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"])
async def test_what_was_not_announced_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    """Too short, too long, or other bytes: refused, and no part of it stays."""
    uploads = Uploads(tmp_path / "uploads")
    with pytest.raises(WireError):
        await uploads.receive(DIGEST, len(CONTENT), pieces(content))
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", DIGEST.upper(), DIGEST[:-1], DIGEST + "\n"])
async def test_only_a_digest_becomes_a_path(tmp_path: Path, digest: str) -> None:
    """Anything else is refused before the disk is touched."""
    with pytest.raises(WireError, match="64 hexadecimal digits"):
        await Uploads(tmp_path / "uploads").receive(digest, 10, pieces(b"0123456789"))
    assert not (tmp_path / "uploads").exists()


@pytest.mark.parametrize("size", [0, (1 << 30) + 1])
async def test_sizes_are_bounded(tmp_path: Path, size: int) -> None:
    """Nothing, and more than the limit, are refused."""
    with pytest.raises(WireError, match="bytes announced"):
        await Uploads(tmp_path / "uploads").receive(DIGEST, size, pieces(b""))


async def test_a_damaged_file_is_found_out_and_can_be_sent_again(tmp_path: Path) -> None:
    """Its digest no longer fits: it is removed, so that the next upload replaces it."""
    uploads = Uploads(tmp_path / "uploads")
    await uploads.receive(DIGEST, len(CONTENT), pieces(CONTENT))
    uploads.path(DIGEST).write_bytes(b"rotten")
    with pytest.raises(ConfigError, match="submit the job again"):
        uploads.read(DIGEST)
    assert not await uploads.receive(DIGEST, len(CONTENT), pieces(CONTENT))
    with pytest.raises(ConfigError, match="cannot be read"):
        uploads.read("0" * 64)


async def test_a_disk_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """The folder's place is taken by a file."""
    (tmp_path / "uploads").write_text("in the way")
    with pytest.raises(UnavailableError, match="tell its operator"):
        await Uploads(tmp_path / "uploads").receive(DIGEST, len(CONTENT), pieces(CONTENT))
