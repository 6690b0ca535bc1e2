"""Tables in the terminal, and figures without a screen, of all experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_FIRST = ("published", "measured", "standard_error")
_OTHERWISE = ("setting", "method", "draws", *_FIRST)


def show(lines: Iterable[Mapping[str, Any]]) -> None:
    """Print a table, setting by setting: what was published, what was measured, its error, and further numbers."""
    settings: dict[str, list[Mapping[str, Any]]] = {}
    for row in lines:
        settings.setdefault(row["setting"], []).append(row)
    for setting, rows in settings.items():
        more = list(dict.fromkeys(name for row in rows for name in row if name not in _OTHERWISE))
        print(f"\n{setting}\n  {'method':<46}" + "".join(f"{name.replace('_', ' '):>24}" for name in (*_FIRST, *more)))
        for row in rows:
            numbers = [row.get(name) for name in (*_FIRST, *more)]
            shown = ["" if number is None else f"{number:.4g}" for number in numbers]
            print(f"  {row['method']:<46}" + "".join(f"{number:>24}" for number in shown), flush=True)


def subplots(columns: int = 1, rows: int = 1, *, width: float = 4.4, height: float = 3.8) -> tuple[Any, Any]:
    """A figure and its axes, (rows, columns); each of so many inches."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    size = (width * columns, height * rows)
    return plt.subplots(rows, columns, figsize=size, constrained_layout=True, squeeze=False)
