"""`kernfed-client enrol|csr|install-cert|renew`: the site's identity."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, log_to_stderr, print_json, print_note
from kernfed.cli.pki import renew_over_network
from kernfed.errors import ConfigError
from kernfed.pki.authority import fingerprint
from kernfed.pki.enrolled import install_bundle, write_request
from kernfed.pki.folder import CA, parse_certificate, read_bytes
from kernfed.pki.names import Role, check_name
from kernfed.wording import moment
from kernfed_client.enrol import enrol as enrol_here

IdentityDir = Annotated[Path, typer.Option("--identity", help="Identity folder.", envvar="KERNFED_IDENTITY")]

_IDENTITY = Path("identity")


def enrol(
    token: Annotated[
        str, typer.Argument(help="Token from the operator; '-' reads it from standard input. Others see an argument.")
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File that holds the token; '-' is standard input. Remove it afterwards.")
    ] = None,
    identity: IdentityDir = _IDENTITY,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait in seconds.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Make a key here and trade the operator's token for a certificate."""
    log_to_stderr()
    text = _token(token, token_file)
    enrolled = asyncio.run(enrol_here(text, identity, timeout_s=timeout))
    if as_json:
        print_json(
            {
                "principal": str(enrolled.principal),
                "federation": enrolled.federation,
                "coordinator": enrolled.coordinator,
                "identity": str(identity),
                "not_after": enrolled.not_after,
            }
        )
        return
    typer.echo(
        f"Enrolled as {enrolled.principal} of {enrolled.federation} in {identity}/, until "
        f"{moment(enrolled.not_after)}; the daemon renews it in time"
    )
    print_note(f"Next: kernfed-client doctor --identity {identity}")


def _token(argument: str, file: Path | None) -> str:
    """The token, from wherever it was put."""
    if bool(argument) == (file is not None):
        raise ConfigError("give the token with --token-file FILE, or --token-file - for standard input")
    if "-" in (argument, str(file)):
        return sys.stdin.readline()
    if file is None:
        print_note(
            "warning: a token among the arguments is seen by everybody on this machine, and stays in the shell's "
            "history; --token-file keeps it out of both"
        )
        return argument
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as err:
        raise ConfigError(f"{file}: the token cannot be read ({err.strerror or err}); check path and rights") from err
    except UnicodeDecodeError:
        text = ""
    if not text.strip():
        raise ConfigError(f"{file}: holds no token; write the line of `kernfed pki token NAME` into it")
    return text


def csr(
    name: Annotated[str, typer.Option(help="Name to write into the request, for the operator who reads it.")],
    identity: IdentityDir = _IDENTITY,
    operator: Annotated[bool, typer.Option("--operator", help="For an operator, not for a client.")] = False,
) -> None:
    """Make a key here and a request.csr, to be signed offline with `kernfed pki sign`."""
    role = Role.OPERATOR if operator else Role.CLIENT
    path = write_request(identity, check_name(name, role))
    typer.echo(str(path))
    print_note(f"Send this file to whoever keeps the CA, who runs: kernfed pki sign {path.name} --as {role}/{name}")


def install_cert(
    certificate: Annotated[Path, typer.Argument(help="What `kernfed pki sign` wrote.")],
    identity: IdentityDir = _IDENTITY,
    ca: Annotated[Path | None, typer.Option(help="The federation's ca.pem, where it came by another way.")] = None,
    coordinator: Annotated[str, typer.Option(help="Coordinator's host:port, where the file does not say.")] = "",
    enrolment: Annotated[str, typer.Option(help="Enrolment host:port, where the file does not say.")] = "",
) -> None:
    """Put a certificate that was signed offline beside its key."""
    principal = install_bundle(identity, certificate, ca=ca, coordinator=coordinator, enrolment=enrolment)
    trusted = parse_certificate(read_bytes(identity / CA), identity / CA)
    typer.echo(f"Installed {principal} of {principal.federation} in {identity}/")
    if ca is None:
        print_note(f"Compare the CA's fingerprint with the operator by phone: {fingerprint(trusted)}")
    doctor = "kernfed doctor" if principal.role is Role.OPERATOR else "kernfed-client doctor"
    print_note(f"Next: {doctor} --identity {identity}")


def renew(
    identity: IdentityDir = _IDENTITY,
    address: Annotated[str | None, typer.Option(help="Coordinator's host:port. Default: the identity's.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Renew the certificate now; the daemon does it by itself at two thirds of its life."""
    renew_over_network(identity, address=address, as_json=as_json)
