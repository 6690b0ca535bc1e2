"""What the steps of a job keep from one to the next, beside its rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
M = TypeVar("M")


class StepMemory:
    """Memos, which last until rows, features or means change, and methods' own states, which last like the job."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._memo: dict[Hashable, Any] = {}
        self._memories: dict[type[Any], Any] = {}

    def memory(self, kind: type[M]) -> M:
        """A method's own state, empty when it is first asked for; it lasts as long as the job, unlike a memo."""
        found: M = self._memories.setdefault(kind, kind())
        return found

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make something once, e.g. a factor of the features, and keep it until rows, features or means change."""
        if key not in self._memo:
            self._memo[key] = make()
        value: T = self._memo[key]
        return value

    def kept(self, key: Hashable) -> Any:
        """What `memo` keeps under a key; None if there is nothing."""
        return self._memo.get(key)

    def forget(self, key: Hashable) -> None:
        """Drop what `memo` kept."""
        self._memo.pop(key, None)

    def forget_all(self) -> None:
        """Drop all that `memo` kept."""
        self._memo.clear()
