"""What `doctor` does with its options."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path

import typer

from kernfed.cli.output import colour, log_to_stderr, print_json
from kernfed.errors import ConfigError
from kernfed.numeric_platform import numeric_platform
from kernfed.pki.identity import Identity
from kernfed.pki.layer_checks import Finding
from kernfed.pki.tls_diagnosis import diagnose


def run(identity: Path, address: str | None, *, as_json: bool, line: str = "") -> None:
    """Tell the platform of this machine, each layer on the way to the coordinator, and the remedy of one that fails.

    Args:
        identity: Identity folder.
        address: host:port; None: the one in the identity folder.
        as_json: Whether all is told as JSON, at the end.
        line: What a daemon of this machine noticed about its line; empty: nothing.

    Raises:
        IdentityError: The identity cannot be read.
        ConfigError: There is no address.
        typer.Exit: A layer fails; with the exit code of its error.
    """
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
        if line:
            typer.echo(f"{colour('note', '33')}  {'line':<13}  {line}")

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
                "line": line,
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
