"""`kernfed web`: a link to the operator's page."""

from __future__ import annotations

from dataclasses import asdict

import typer

from kernfed.cli.operator_options import CoordinatorOption, IdentityOption, with_operator
from kernfed.cli.output import JsonOption, print_json, print_note
from kernfed.wire.operator_client import OperatorClient


def web(
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Print a link to the coordinator's page, which signs in once and for a short time."""
    link = with_operator(identity, coordinator, OperatorClient.page_link)
    if as_json:
        print_json(asdict(link))
    else:
        typer.echo(link.url)
        print_note(f"good for one sign-in until {link.expires_at.astimezone():%H:%M:%S}; whoever has it is you")
