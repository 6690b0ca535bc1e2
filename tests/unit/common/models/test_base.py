"""Models of other formats than the project's are loaded by the package that names their format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import ConfigError, PluginError
from kernfed.models.base import load
from kernfed.models.folder import Pair
from kernfed_testing.machine.installed import on_path, write_package

PAIR = Pair()
LOADERS = """
def tree(folder):
    return ("a tree", folder.name)


def fails(folder):
    return {}["roots"]
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[None]:
    """A package with two formats."""
    points = {"kernfed.models": {"acme.tree/1": "acme_models:tree", "acme.root/1": "acme_models:fails"}}
    write_package(tmp_path, "acme-models", points, {"acme_models.py": LOADERS})
    with on_path(tmp_path):
        yield


def folder(tmp_path: Path, form: str) -> Path:
    """The folder of a model of a format."""
    PAIR.write(tmp_path / "model", {"format": form}, {"w": np.zeros(1)}, durable=False)
    return tmp_path / "model"


def test_a_format_from_outside_is_loaded(tmp_path: Path) -> None:
    """Its package gets the folder, unless the format is one of our own."""
    made = folder(tmp_path, "acme.tree/1")
    assert load(made, {}, PAIR) == ("a tree", "model")  # type: ignore[comparison-overlap]  # no model at all
    assert load(made, {"acme.tree/1": lambda _: "ours"}, PAIR) == "ours"  # type: ignore[comparison-overlap,dict-item,return-value]  # as above


def test_a_format_that_nobody_loads_names_those_there_are(tmp_path: Path) -> None:
    """The error has the formats of packages too; one of a package that fails names the package."""
    with pytest.raises(ConfigError, match=r"'acme\.bush/1' is unknown here, want acme\.root/1 or acme\.tree/1; .*pack"):
        load(folder(tmp_path, "acme.bush/1"), {}, PAIR)
    with pytest.raises(PluginError, match=r"a model of format acme\.root/1, of package acme-models 1\.0, raised"):
        load(folder(tmp_path, "acme.root/1"), {}, PAIR)
