"""Commands that are loaded when they are run: named as they call themselves, and only then loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.core import TyperGroup

from kernfed.cli.later import load_command
from kernfed.cli.main import app as operator_app
from kernfed_client.cli import app as client_app
from kernfed_server.__main__ import app as coordinator_app
from kernfed_simulation.__main__ import app as simulation_app
from kernfed_testing.limits import LIMIT_S

APPS = {"kernfed.cli.main": operator_app, "kernfed_server.__main__": coordinator_app, "kernfed_client.cli": client_app}


@pytest.mark.parametrize("module", APPS)
def test_the_list_says_what_each_command_says_of_itself(module: str) -> None:
    """The help text in the list of commands is the first paragraph of the command's own."""
    for info in APPS[module].registered_commands:
        made = load_command(info.cls.source)  # type: ignore[union-attr]  # of the class that `add_later` makes
        assert info.help == " ".join(made.help.split("\n\n")[0].split()), info.name


def _commands(command: Any) -> Iterator[Any]:
    yield command
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name))


@pytest.mark.parametrize("app", [*APPS.values(), simulation_app], ids=[*APPS, "kernfed_simulation"])
def test_help_shows_all_that_is_written(app: typer.Typer) -> None:
    """A word in brackets is markup, and would be gone from the page: no help has one."""
    for command in _commands(typer.main.get_command(app)):
        for text in (command.help, *(getattr(option, "help", None) for option in command.params)):
            assert Text.from_markup(text or "").plain == (text or ""), (command.name, text)


@pytest.mark.slow
@pytest.mark.parametrize("module", APPS)
def test_help_loads_no_command(module: str) -> None:
    """`--help` loads none of what a command needs: neither grpc nor pydantic, numpy or torch."""
    code = (
        f"import sys\nfrom {module} import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'grpc', 'pydantic', 'numpy', 'torch', 'cryptography', 'sqlalchemy'}\n"
        "print('loaded:', *sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]


def test_a_source_names_a_function_or_a_group() -> None:
    """A function with typer's annotations becomes a command, and an app a group."""
    assert load_command("kernfed.cli.report:report").name == "report"
    assert isinstance(load_command("kernfed.cli.pki:app"), TyperGroup)
