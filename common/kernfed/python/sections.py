"""Tables of a job file as classes: `Newton`, `FedAvg`, ... for [method], `Data`, `Cohort`, `Features` and `Privacy`.

`sections.pyi`, which `make docs` writes, shows them to type checkers and editors.
"""

from __future__ import annotations

from typing import Any

from kernfed.python.section_classes import classes


def __getattr__(name: str) -> Any:
    try:
        return classes()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(classes())
