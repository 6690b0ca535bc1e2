"""Commands whose module is loaded when they are run, so that help, and every other command, starts without it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from kernfed.cli.output import new_app


def add_later(app: typer.Typer, name: str, source: str, help_text: str) -> None:
    """Add a command, or a group of commands, that is named here and made elsewhere.

    Args:
        app: Where to add it.
        name: As a person types it.
        source: `module:attribute` of a function with typer's annotations, or of a group's app.
        help_text: First paragraph of its own help, for the list of commands.
    """

    class Later(TyperCommand):
        source: ClassVar[str]

        def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
            return load_command(self.source).make_context(info_name, args, parent, **extra)

    Later.source = source

    @app.command(name, cls=Later, help=help_text)
    def _unused() -> None: ...


def load_command(source: str) -> Any:
    """Import a command, or a group of commands; `source` as for `add_later`."""
    module, _, attribute = source.partition(":")
    with _without_collections():
        _load_logs()
        found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = new_app("")
    alone.command()(found)
    return typer.main.get_command(alone)


def _load_logs() -> None:
    """Load structlog without rich, which takes a tenth of a service's start: our tracebacks are plain text."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to say that a module is not there
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Nothing that modules make as they load is garbage: to look for some takes a tenth of the time of loading them."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()
