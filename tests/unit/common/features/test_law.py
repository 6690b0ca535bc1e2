"""Laws of frequencies from outside: another kernel by the same map, and a package at fault told by its name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.features.kernels import Kernel
from kernfed.features.law import full_name
from kernfed.features.spec import FeatureForm, FeatureSpec, draw_frequencies, fingerprint, make_spec
from kernfed_testing.machine.installed import look_again, on_path, write_package

LAWS = """
from kernfed.features.law import Frequencies

CAUCHY = Frequencies(lambda draws, num, d: (pair := draws.normal(num, 2 * d))[:, :d] / pair[:, d:])
NARROW = Frequencies(lambda draws, num, d: draws.normal(num, d)[:, 1:])
RAISES = Frequencies(lambda draws, num, d: 1 / 0)
OTHER = 7
"""
NAMES = {"cauchy": "CAUCHY", "narrow": "NARROW", "raises": "RAISES", "other": "OTHER"}


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[Path]:
    """A package with laws."""
    points = {"kernfed.features": {name: f"cauchy_laws:{value}" for name, value in NAMES.items()}}
    write_package(tmp_path, "cauchy-laws", points, {"cauchy_laws.py": LAWS})
    with on_path(tmp_path):
        yield tmp_path


def spec_of(name: str, num: int = 64, form: FeatureForm = FeatureForm.SINE_COSINE) -> FeatureSpec:
    return make_spec(Kernel.GAUSSIAN, form, 2, (0.5, 2.0), num, 3, full_name(name))


def test_its_features_approximate_its_kernel() -> None:
    """Independent Cauchy frequencies give exp(-|x_1|/ℓ_1 - |x_2|/ℓ_2), within six deviations of a mean of cosines."""
    num = 4000
    omega = draw_frequencies(spec_of("cauchy", num)).omega
    for x in np.array([[0.0, 0.0], [0.3, 0.0], [0.0, -1.0], [0.2, 0.7]]):
        kernel = math.exp(-abs(x[0]) / 0.5 - abs(x[1]) / 2.0)
        assert abs(np.cos(omega @ x).mean() - kernel) <= 6 / math.sqrt(num)


def test_its_draws_are_the_seeds_and_the_laws() -> None:
    """The same specification gives the same bits, another law or none other ones, and fewer are the first of more."""
    spec = spec_of("cauchy")
    assert spec.law == "cauchy-laws:cauchy"
    assert fingerprint(spec) == fingerprint(spec_of("cauchy"))
    assert fingerprint(spec) != fingerprint(replace(spec, law=""))
    np.testing.assert_array_equal(draw_frequencies(spec).omega[:8], draw_frequencies(spec_of("cauchy", 8)).omega)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("narrow", r"^package cauchy-laws 1\.0 .*drew frequencies of shape \(64, 1\), want \(64, 2\)"),
        ("raises", r"^package cauchy-laws 1\.0 .*drawing frequencies raised ZeroDivisionError"),
        ("other", r"^package cauchy-laws 1\.0 .*is no Frequencies"),
    ],
)
def test_a_faulty_law_is_told_with_its_package(name: str, expected: str) -> None:
    """What it draws is checked, and what it raises is told."""
    with pytest.raises(ConfigError, match=expected):
        draw_frequencies(spec_of(name))


def test_a_law_that_is_not_here_is_told_with_its_package(site: Path) -> None:
    """A map that was made elsewhere names the package to install; a name in a job lists what is known."""
    spec = spec_of("cauchy", 77)  # a map that nothing has kept
    with pytest.raises(ConfigError, match=r"law is 'cauchi', which no package .* known are: cauchy, narrow, other,"):
        full_name("cauchi")
    (site / "cauchy_laws-1.0.dist-info/entry_points.txt").unlink()
    look_again()
    with pytest.raises(ConfigError, match=r"law 'cauchy' comes from package 'cauchy-laws', which is not installed"):
        fingerprint(spec)


def test_a_map_without_frequencies_has_no_law() -> None:
    """Landmarks and exact maps draw none."""
    with pytest.raises(ConfigError, match=r"features\.law is .*draws no frequencies"):
        spec_of("cauchy", form=FeatureForm.NYSTROEM)
