"""`kernfed doctor` and `kernfed-client doctor`: this machine's platform, and the way to the coordinator in layers."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, colour, log_to_stderr, print_json
from kernfed.errors import ConfigError
from kernfed.numeric_platform import numeric_platform
from kernfed.pki.identity import Identity
from kernfed.pki.tls_diagnosis import Finding, diagnose


def doctor(
    identity: Annotated[Path, typer.Option(help="Identity folder.", envvar="KERNFED_IDENTITY")] = Path("identity"),
    address: Annotated[
        str | None, typer.Option(help="Coordinator's host:port. Default: the one in the identity folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell this machine's platform, and check the way to the coordinator: identity, DNS, TCP, TLS, mutual TLS, role."""
    log_to_stderr()
    loaded = Identity.load(identity, check_dates=False)
    address = address or loaded.coordinator
    if not address:
        raise ConfigError(f"{identity} names no coordinator: give --address host:port")
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401, PLC0415  # where it is installed; its instructions are told once it is loaded
    here = numeric_platform()
    if not as_json:
        typer.echo(f"here  {'platform':<13}  {here}")

    def show(finding: Finding) -> None:
        if as_json:
            return
        mark = colour("ok  ", "32") if finding.ok else colour("FAIL", "31")
        typer.echo(f"{mark}  {finding.layer:<13}  {finding.message}")

    findings = diagnose(address, loaded, on_finding=show)
    last = findings[-1]
    if as_json:
        print_json(
            {
                "address": address,
                "platform": asdict(here),
                "ok": last.ok,
                "findings": [
                    {"layer": f.layer, "ok": f.ok, "message": f.message, "remedy": f.remedy} for f in findings
                ],
            }
        )
    if not last.ok:
        if not as_json:
            typer.echo(f"\nremedy: {last.remedy}")
        raise typer.Exit(last.error.exit_code)
