"""Laws of random frequencies that packages from outside bring: another kernel of the same feature map.

By Bochner's theorem a law that is symmetric about 0 is the spectral density of one shift-invariant kernel, and the
features approximate it. A package names a `Frequencies` under an entry point of the group `kernfed.features`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernfed import plugins, rng
from kernfed.arrays import Floats
from kernfed.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Frequencies:
    """A law of frequencies."""

    draw: Callable[[rng.Stream, int, int], Floats]
    """(random numbers, D, d) -> frequencies of lengthscale 1, (D, d), finite. It must draw from its first argument
    alone, and compute by + - * / and sqrt, so that each platform has the same bits; the first D of more frequencies
    are best those of fewer."""


def full_name(name: str) -> str:
    """A law with its package, as specifications of maps have it, e.g. `kernfed-cauchy:cauchy`.

    Raises:
        ConfigError: No package that is installed here brings it, or several do.
    """
    point = plugins.find(plugins.FEATURES, name)
    if point is None:
        known = ", ".join(sorted(p.name for p in plugins.points(plugins.FEATURES))) or "none"
        raise ConfigError(
            f"features.law is {name!r}, which no package that is installed here brings; known are: {known}; "
            f"{plugins.told()}. Correct the name, or install the package that brings it"
        )
    return f"{point.plugin.name}:{name}"


def drawn(law: str, seed: int, num: int, num_columns: int) -> Floats:
    """Draw frequencies of lengthscale 1.

    Args:
        law: As of `full_name`.
        seed: Of the draw.
        num: Frequencies D.
        num_columns: Columns d.

    Returns:
        Shape (D, d).

    Raises:
        ConfigError: The package is not installed here, or what it draws are no such frequencies; names it.
    """
    package, _, name = law.rpartition(":")
    point = plugins.find(plugins.FEATURES, name)
    if point is None or not plugins.same(point.plugin.name, package):
        raise ConfigError(
            f"features.law {name!r} comes from package {package!r}, which is not installed here; install it "
            f"({plugins.told()})"
        )
    made = point.object(Frequencies)
    try:
        found = np.asarray(made.draw(rng.stream(seed, "features", "law", name), num, num_columns), dtype=np.float64)
    except Exception as err:  # whatever a stranger's function does
        raise point.refuse(f"drawing frequencies raised {type(err).__name__}: {err}", "mend or update it") from err
    if found.shape != (num, num_columns) or not np.isfinite(found).all():
        problem = f"drew frequencies of shape {found.shape}, want {(num, num_columns)}, or not all are finite"
        raise point.refuse(problem, "mend or update it")
    return found
