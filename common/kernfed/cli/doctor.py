"""`kernfed doctor` and `kernfed-client doctor`: this machine's platform, and the way to the coordinator in layers."""

from __future__ import annotations

from typing import Annotated

import typer

from kernfed.cli.operator_options import IdentityOption, find_identity
from kernfed.cli.output import JsonOption


def doctor(
    identity: IdentityOption = None,
    address: Annotated[
        str | None, typer.Option(help="Coordinator's host:port. Default: the one in the identity folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell this machine's platform, and check the way to the coordinator: identity, DNS, TCP, TLS, mutual TLS, role."""
    from kernfed.cli import diagnosis  # noqa: PLC0415  # loads grpc and numpy, which help does without

    diagnosis.run(find_identity(identity), address, as_json=as_json)
