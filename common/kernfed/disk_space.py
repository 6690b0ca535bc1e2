"""A disk that takes no more: how to tell, from whoever noticed it."""

from __future__ import annotations

import errno
import os
from typing import Final

from kernfed.errors import DiskFullError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
FULL_TEXT: Final = "No space left on device"
_FULL_TEXTS: Final = (
    "database or disk is full",  # SQLite
    FULL_TEXT,  # PostgreSQL, safetensors, and whatever a subprocess says
    "Disk quota exceeded",
)


def no_space() -> OSError:
    """The error of a write that ended short: the disk is full."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_full(err: BaseException) -> bool:
    """Whether an error says that a disk, here or at the database, has no space left."""
    if isinstance(err, OSError) and err.errno in _FULL:
        return True
    return isinstance(err, DiskFullError) or any(text in str(err) for text in _FULL_TEXTS)


def says_full(text: str) -> bool:
    """Whether the last words of a subprocess say that a disk has no space left."""
    return any(full in text for full in _FULL_TEXTS)
