"""Every module of messages there is: those that all methods share, and those in the methods' rooms."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import kernfed.methods
from kernfed.federation import messages


def message_modules() -> Iterator[ModuleType]:
    """Import and hand over the shared modules of messages, then each room's, whose names end in `messages`."""
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        if module.name != __name__:
            yield importlib.import_module(module.name)
    for room in pkgutil.iter_modules(kernfed.methods.__path__, "kernfed.methods."):
        if room.ispkg:
            inside = importlib.import_module(room.name).__path__
            for module in pkgutil.iter_modules(inside, f"{room.name}."):
                if module.name.endswith("messages"):
                    yield importlib.import_module(module.name)
