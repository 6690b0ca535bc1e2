"""Threads of numpy, scipy and torch: one for small matrices, for large ones as many as there are.

Each of the three libraries has threads of its own, and they wait for each other at the end of every product. On small
matrices that takes longer than the product. How they wait is decided in `kernfed`, before the libraries are loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import scipy.linalg  # noqa: F401  # it brings a BLAS of its own, which is found only once it is loaded
import torch
from threadpoolctl import ThreadpoolController

LARGE = 1 << 18
"""Numbers in a matrix (2 MiB) from which its products are shared among threads."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """Threads of one library."""

    now: Callable[[], int]
    limit: Callable[[int], object]
    most: int
    """As many as a person allows."""
    release: Callable[[], object] = lambda: None
    """Lets other threads of Python limit it: from threadpoolctl 3.8 on the first that did is the only one that may."""


@functools.cache
def _pools() -> tuple[_Pool, ...]:
    blas = ThreadpoolController().select(user_api="blas").lib_controllers
    own = _Pool(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads())
    return own, *(_blas_pool(found) for found in blas)


def _blas_pool(found: Any) -> _Pool:
    release = getattr(found, "clear_controlling_thread", lambda: None)
    return _Pool(found.get_num_threads, found.set_num_threads, found.num_threads, release)


def allow(threads: int) -> None:
    """Let each library have so many threads from here on, unless the matrices are small."""
    for pool in _pools():
        pool.limit(threads)
        pool.release()
    _pools.cache_clear()


@contextmanager
def suited(numbers: int) -> Iterator[None]:
    """Compute with as many threads as the matrices deserve; afterwards with as many as before.

    The number follows from the sizes alone, so the same job has the same bits in every run.

    Args:
        numbers: In the largest matrix of the products within.
    """
    others = []
    for pool in _pools():
        before, wanted = pool.now(), pool.most if numbers >= LARGE else 1
        if before != wanted:  # to limit a library takes longer than to ask it
            others.append((pool, before, wanted))
    try:
        for pool, _, wanted in others:
            pool.limit(wanted)
        yield
    finally:
        for pool, before, _ in others:
            pool.limit(before)
            pool.release()
