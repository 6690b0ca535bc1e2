"""A class that the client's own file names; a peer never names code."""

from __future__ import annotations

import importlib
from typing import Any

from kernfed.errors import ConfigError


def import_class(name: str, key: str) -> Any:
    """A class by its full name, as the client's own file writes it.

    Raises:
        ConfigError: There is none here.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as err:
        raise ConfigError(f"{key}: class_name {name!r} cannot be imported here ({err}); install its package") from err
    if not isinstance(found, type):
        raise ConfigError(f"{key}: class_name {name!r} is not a class")
    return found
