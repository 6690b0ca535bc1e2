"""Options by which a command finds the operator's identity and the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from kernfed.cli.output import log_to_stderr
from kernfed.errors import ConfigError
from kernfed.pki.identity import Identity
from kernfed.wire.operator_client import OperatorClient

T = TypeVar("T")

IdentityOption = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        envvar="KERNFED_IDENTITY",
        help="Identity folder of the operator. Default: the one ./pki/operator-*, else ~/.kernfed/operator.",
    ),
]
CoordinatorOption = Annotated[
    str | None, typer.Option("--coordinator", help="host:port. Default: the one that the identity names.")
]


def find_identity(given: Path | None, here: Path | None = None, home: Path | None = None) -> Path:
    """The identity folder to use.

    Args:
        given: What the caller said.
        here: Folder to look in; the current one where unset.
        home: The user's; `~` where unset.

    Raises:
        ConfigError: None was given, and there is none or more than one to choose from.
    """
    if given is not None:
        return given
    found = sorted(path for path in ((here or Path()) / "pki").glob("operator-*") if path.is_dir())
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"several operators: {', '.join(map(str, found))}; choose one with --identity")
    usual = (home or Path.home()) / ".kernfed" / "operator"
    if usual.is_dir():
        return usual
    raise ConfigError(
        f"no operator identity: neither ./pki/operator-* nor {usual} exists; give --identity DIR, or set "
        "KERNFED_IDENTITY"
    )


def with_operator(identity: Path | None, coordinator: str | None, use: Callable[[OperatorClient], Awaitable[T]]) -> T:
    """Run `use` with a client for the operator, in an event loop of its own."""
    log_to_stderr()
    loaded = Identity.load(find_identity(identity), check_dates=False)

    async def run() -> T:
        async with OperatorClient(loaded, coordinator) as operator:
            return await use(operator)

    return asyncio.run(run())
