"""Shared parts of all commands: one clear line for an error, tables for people, JSON for programs.

Start-up counts here, so nothing heavy is imported at the top: no grpc, no torch, no pandas, no rich.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from kernfed.cli.surroundings import fault_of_surroundings, give_up_output, name_output
from kernfed.errors import KernfedError

T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
"""Parameter `as_json: JsonOption = False` of a command that can print JSON."""

PIPED_WIDTH = 240
"""Characters of a line where no terminal says how many there are."""
_INTERNAL = 1
_INTERRUPTED = 130
_debug = False


def new_app(help_text: str) -> typer.Typer:
    """A command group in the house style: help without arguments, no completion options, no traceback boxes."""
    return typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=help_text)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernfed {version('kernfed')}")
        raise typer.Exit


DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
]


def common_options(debug: DebugOption = False, show_version: VersionOption = False) -> None:
    """Options before the command; every app registers this as its callback."""
    global _debug
    _debug = debug


def run_app(app: Callable[[], Any]) -> NoReturn:
    """Run an app and exit: 0, 2 for wrong usage, or an error's own code after one line on stderr."""
    # grpc would print OpenSSL's words for a failed handshake, and a trace of a proxy's answer; we diagnose ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    name_output()
    try:
        app()
        sys.stdout.flush()
        code = 0
    except KernfedError as err:
        code = _failed(f"error: {err}", err.exit_code)
    except KeyboardInterrupt:
        code = _failed("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        give_up_output()  # whoever read it has enough
        code = _INTERNAL
    except Exception as err:
        told = fault_of_surroundings(err)
        text = f"{type(err).__name__}: {err} (this is a fault in kernfed; `--debug` before the command shows more)"
        code = _failed(f"error: {told or text}", told.exit_code if told else _INTERNAL)
        if told:
            give_up_output()
    sys.exit(code)


def log_to_stderr() -> None:
    """Send log lines of this process to stderr, for commands whose stdout is their result."""
    import structlog  # noqa: PLC0415  # commands that log nothing do without

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.EventRenamer("event"),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def print_json(value: Any) -> None:
    """Print a value as JSON; times in ISO 8601. Signs that nobody sees, such as marks of direction, are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=_jsonable)
    typer.echo("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table: ruled on a terminal, without rules on a narrow one; piped, plain columns that are never wrapped.

    Nothing is cut off: where even its words do not fit, the lines are plain ones, which the terminal itself wraps.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = _widths(columns, cells, len)
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415  # piped output does without
        from rich.table import Table  # noqa: PLC0415  # piped output does without
        from rich.text import Text  # noqa: PLC0415  # piped output does without

        console, fits = Console(), True
        table, given = Table(title=title or None, title_justify="left"), list(widths)
        if sum(widths) + 3 * len(columns) + 1 > console.width:
            table.box, table.pad_edge = None, False
            words = _widths(columns, cells, lambda text: max(map(len, text.split()), default=0))
            left = console.width - sum(words) - 2 * (len(columns) - 1)
            for i, word in enumerate(words):
                more = min(max(left, 0), widths[i] - word)
                given[i], left = word + more, left - more
            fits = left >= 0
        if fits:
            for name, width in zip(columns, given, strict=True):
                table.add_column(name, width=width)
            for row in cells:
                table.add_row(*map(Text, row))
            console.print(table)
            return
    if title:
        typer.echo(title)
    for row in [list(columns), *cells]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], of: Callable[[str], int]) -> list[int]:
    return [max([of(name), *(of(row[i]) for row in cells)]) for i, name in enumerate(columns)]


def print_folded(head: str, text: str) -> None:
    """Print a line; on a terminal that is narrower it goes on below, at blanks, beside its head."""
    if not sys.stdout.isatty():
        typer.echo(f"{head}{text}")
        return
    width = shutil.get_terminal_size().columns
    indent = len(head) if len(head) <= width // 2 else 4
    folded = textwrap.fill(
        f"{head}{text}", width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    typer.echo(folded)


def print_rich(what: Any) -> None:
    """Print what rich renders: as wide as the terminal; piped, wide enough that nothing is cut."""
    from rich.console import Console  # noqa: PLC0415  # piped output does without

    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(what)


def print_found(
    look: Callable[[], T], json_of: Callable[[T], Any], table_of: Callable[[T], Any], *, as_json: bool
) -> None:
    """Print what a check finds, for people or as JSON; as JSON, the error of one that fails is printed too."""
    try:
        found = look()
    except KernfedError as err:
        if as_json:
            print_json({"error": {"reason": err.reason, "message": str(err)}})
        raise
    if as_json:
        print_json(json_of(found))
    else:
        print_rich(table_of(found))


def print_note(text: str) -> None:
    """Print a remark for a person to stderr, so that stdout stays the command's result."""
    typer.echo(text, err=True)


def colour(text: str, code: str, stream: Any = None) -> str:
    """Colour a text where the stream is a terminal and NO_COLOR is unset. `code`: 31 red, 32 green, 33 yellow."""
    stream = stream or sys.stdout
    return f"\x1b[{code}m{text}\x1b[0m" if stream.isatty() and not os.environ.get("NO_COLOR") else text


def _failed(text: str, code: int) -> int:
    if _debug:
        traceback.print_exc()
    typer.echo(colour(text, "31", sys.stderr), err=True)
    return code


def _escaped(sign: str) -> str:
    return json.dumps(sign)[1:-1]


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return "" if value is None else str(value)


def _jsonable(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
