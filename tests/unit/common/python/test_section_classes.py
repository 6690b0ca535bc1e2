"""Tests of `kernfed.python.section_classes`: a class for each table of a job file."""

from __future__ import annotations

import ast
from typing import Any

import pytest

import kernfed
from kernfed.errors import ConfigError
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.methods.registry import METHODS
from kernfed.python.section_classes import WRITTEN, class_name, classes
from kernfed_testing.places import ROOT

STUB = ROOT / "common" / "kernfed" / "python" / "sections.pyi"


def test_there_is_a_class_for_each_method_and_table() -> None:
    """`dir(kernfed)` shows them, none hides another name, and the stub shows the same to type checkers."""
    names = {class_name(method.settings) for method in METHODS.values()} | {"Cohort", "Data", "Features", "Privacy"}
    assert names == set(classes())
    assert len(names) == len(METHODS) + 4
    assert names <= set(dir(kernfed))
    assert not names & set(kernfed.__all__)
    shown = {node.name for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}
    assert shown == names
    assert set(WRITTEN) <= set(JobFile.model_fields)


def test_a_class_is_its_table() -> None:
    """It has the keys, the defaults and the checks of the table, says what was set, and tells of its keys."""
    found = kernfed.Newton(rounds=3)
    assert found.name == "newton"
    assert (found.rounds, found.ridge) == (3, "auto-if-many")
    assert repr(found) == "kernfed.Newton(rounds=3)"
    assert found == kernfed.Newton(rounds=3)
    assert "rounds = 30: Turns of the method's loop." in (kernfed.Newton.__doc__ or "")
    with pytest.raises(AttributeError, match="Newtom"):
        kernfed.Newtom  # noqa: B018


wrongly: Any = kernfed
"""The same to which type checkers say nothing."""
HEAD = 'name = "x"\n'
DATA = '[data]\ntask = "binary"\ntarget = "y"\nfeatures = ["a"]\n'


@pytest.mark.parametrize(
    ("make", "table"),
    [
        (lambda: wrongly.Newton(rigde=1), f'{DATA}[method]\nname = "newton"\nrigde = 1\n'),
        (lambda: wrongly.Newton(ridge=-1), f'{DATA}[method]\nname = "newton"\nridge = -1\n'),
        (lambda: wrongly.Newton(local_steps=3), f'{DATA}[method]\nname = "newton"\nlocal_steps = 3\n'),
        (lambda: wrongly.Newton(kernel="x"), f'{DATA}[method]\nname = "newton"\nkernel = "x"\n'),
        (lambda: wrongly.FedAvg(trim=0.3), f'{DATA}[method]\nname = "fedavg"\ntrim = 0.3\n'),
        (lambda: wrongly.Cohort(clients=[]), f'{DATA}[method]\nname = "dkrr"\n[cohort]\nclients = []\n'),
        (
            lambda: wrongly.Data(task="binry", target="y"),
            '[method]\nname = "dkrr"\n[data]\ntask = "binry"\ntarget = "y"\n',
        ),
        (lambda: wrongly.Features(seed=-1), f'{DATA}[method]\nname = "dkrr"\n[features]\nseed = -1\n'),
    ],
)
def test_a_wrong_key_gets_the_sentence_of_the_file(make: Any, table: str) -> None:
    """Name of the class in place of the file; all else is the same, word by word."""
    with pytest.raises(ConfigError) as here:
        make()
    with pytest.raises(ConfigError) as there:
        parse_job(HEAD + table, "job.toml")
    told = [line.partition(": ") for line in str(here.value).splitlines()]
    assert {source for source, _, _ in told} <= {f"kernfed.{name}" for name in classes()}
    assert [rest for _, _, rest in told] == [line.partition(": ")[2] for line in str(there.value).splitlines()]


def test_the_class_says_which_method_it_is() -> None:
    """A second word on that is refused."""
    with pytest.raises(ConfigError, match=r"kernfed\.Newton: method\.name: the class says it; remove the key"):
        wrongly.Newton(name="newton")
