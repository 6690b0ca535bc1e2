"""`kernfed pki`: the federation's CA, on the coordinator's machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from kernfed.cli.operator_options import IdentityOption, find_identity
from kernfed.cli.output import JsonOption, log_to_stderr, new_app, print_json, print_note, print_table
from kernfed.errors import ConfigError
from kernfed.pki.federation import HERE_ALONE, FederationPki, default_operator
from kernfed.pki.folder import key_sha256, parse_key, write_file
from kernfed.pki.identity import Identity
from kernfed.pki.names import Role, parse_principal
from kernfed.pki.records import live
from kernfed.pki.renewal import renew as renew_remotely
from kernfed.pki.tokens import decode_token
from kernfed.wording import clean, moment

app = new_app("Make and manage the federation's certificates. Run these where the PKI folder is.")

PkiDir = Annotated[Path, typer.Option("--dir", help="PKI folder.", envvar="KERNFED_PKI")]
Days = Annotated[float, typer.Option("--days", min=0.0001, max=3650, help="Life of the certificate in days.")]

_PKI = Path("pki")


@app.command()
def init(
    federation: Annotated[str, typer.Option(help="Name of the federation: a-z, 0-9 and '-'.")],
    pki: PkiDir = _PKI,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or address that clients dial; repeat for more. The first goes into tokens. "
            "Default: localhost, 127.0.0.1, this machine's name."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the coordinator.")] = 8470,
    enrol_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for enrolment.")] = 8471,
    operator: Annotated[str | None, typer.Option(help="Name of the first operator. Default: your user name.")] = None,
    days: Days = 90,
    as_json: JsonOption = False,
) -> None:
    """Make a CA, and the identities of the coordinator and of one operator."""
    make_federation(
        pki,
        federation,
        hosts=host or (),
        port=port,
        enrol_port=enrol_port,
        operator=operator,
        days=days,
        as_json=as_json,
    )


def make_federation(
    pki: Path,
    federation: str,
    *,
    hosts: Sequence[str],
    port: int,
    enrol_port: int,
    operator: str | None,
    days: float = 90,
    as_json: bool = False,
) -> None:
    """Make a federation, as `FederationPki.init`, and say what lies where."""
    operator = operator or default_operator()
    made = FederationPki.init(
        pki,
        federation,
        hosts=hosts,
        port=port,
        enrolment_port=enrol_port,
        operator=operator,
        lifetime=timedelta(days=days),
    )
    info = made.registry.info()
    if as_json:
        print_json(
            {
                "federation": federation,
                "dir": str(pki),
                "coordinator": info.coordinator,
                "enrolment": info.enrolment,
                "hosts": info.hosts,
                "operator": str(made.operator_folder(operator)),
            }
        )
        return
    typer.echo(f"Federation {federation} is ready in {pki}/")
    rows = [
        ("CA", f"{pki}/ca.pem, ca.key", "whoever has ca.key can admit anybody: keep it here, back it up"),
        ("coordinator", made.coordinator_folder, f"dialled as {info.coordinator}; valid for {', '.join(info.hosts)}"),
        (
            f"operator/{operator}",
            made.operator_folder(operator),
            "for --identity of `kernfed job` and `kernfed client`",
        ),
    ]
    print_table(["what", "where", "note"], rows)
    if info.hosts[0] in HERE_ALONE:
        print_note(
            "Only clients on this machine can dial localhost; for others: kernfed pki renew coordinator --host NAME"
        )
    print_note("Next: kernfed pki token CLIENT")


@app.command()
def token(
    client: Annotated[str, typer.Argument(help="Name that the new client gets.")],
    pki: PkiDir = _PKI,
    hours: Annotated[float, typer.Option(min=0.001, max=24 * 365, help="How long the token can be used.")] = 24,
    address: Annotated[
        str | None, typer.Option(help="Enrolment host:port to put in, where it is not the federation's usual one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a single-use enrolment token for a client; prints one line to send to its administrator."""
    federation = FederationPki.open(pki)
    text = federation.make_token(client, lifetime=timedelta(hours=hours), enrolment=address)
    made = decode_token(text)
    certificates = live(federation.registry.certificates(), federation.now())
    held = [c for c in certificates if (c.role, c.name) == (Role.CLIENT, client)]
    if as_json:
        print_json(
            {
                "token": text,
                "client": client,
                "expires": made.expires,
                "enrolment": made.enrolment,
                "ca_sha256": made.ca_sha256,
            }
        )
    else:
        typer.echo(text)
        print_note(
            f"For {client}, once, until {moment(made.expires)}, at {made.enrolment}. Send it over a channel "
            f"that you trust. There: kernfed-client enrol --token-file FILE"
        )
    if held:
        print_note(
            f"Note: {client} holds a certificate until {held[0].not_after:%Y-%m-%d}; if its machine is gone, first "
            f"`kernfed pki revoke {client}`, then make the token"
        )


@app.command()
def sign(
    request: Annotated[Path, typer.Argument(help="request.csr of the site.")],
    name: Annotated[str, typer.Option("--as", metavar="ROLE/NAME", help="Whom to sign for, e.g. client/cleveland.")],
    pki: PkiDir = _PKI,
    out: Annotated[Path | None, typer.Option(help="File to write. Default: NAME.pem here.")] = None,
    days: Days = 90,
    as_json: JsonOption = False,
) -> None:
    """Sign a request that came by mail or stick; what it asks to be called is ignored."""
    federation = FederationPki.open(pki)
    principal = parse_principal(federation.federation, name)
    out = out or Path(f"{principal.name}.pem")
    if out.exists():
        raise ConfigError(f"{out} exists; nothing was signed: give another file with --out")
    try:
        csr = request.read_bytes()
    except OSError as err:
        raise ConfigError(f"cannot read {request}: {err.strerror}") from None
    write_file(out, federation.sign(csr, principal, lifetime=timedelta(days=days)), 0o644)
    if as_json:
        print_json({"principal": str(principal), "certificate": str(out)})
        return
    typer.echo(f"Signed for {principal}: {out}")
    print_note(f"Send it back. There: kernfed-client install-cert {out.name}")


@app.command("list")
def list_(pki: PkiDir = _PKI, as_json: JsonOption = False) -> None:
    """List certificates and tokens."""
    federation = FederationPki.open(pki)
    now = federation.now()
    certificates = federation.registry.certificates()
    tokens = federation.registry.tokens()
    if as_json:
        print_json(
            {
                "certificates": [{**asdict(c), "state": c.state(now)} for c in certificates],
                "tokens": [{**asdict(t), "state": t.state(now)} for t in tokens],
            }
        )
        return
    rows = [
        (
            c.name if c.role == c.name else f"{c.role}/{c.name}",
            c.state(now),
            clean(c.revoked_why),
            c.not_after,
            round((c.not_after - now) / timedelta(days=1), 1) if now < c.not_after else "",
            c.via,
            c.serial,
        )
        for c in certificates
    ]
    print_table(["name", "state", "why", "not after (UTC)", "days", "via", "serial"], rows, "Certificates")
    pending = [t for t in tokens if t.state(now) == "open"]
    if pending:
        typer.echo()
        print_table(
            ["client", "made (UTC)", "expires (UTC)"],
            [(t.client, t.created_at, t.expires_at) for t in pending],
            "Open tokens",
        )


@app.command()
def renew(
    who: Annotated[
        str | None, typer.Argument(metavar="[coordinator|operator/NAME]", help="Whose folder to renew, beside the CA.")
    ] = None,
    pki: PkiDir = _PKI,
    identity: Annotated[
        Path | None, typer.Option(help="Renew this folder over the network instead, without the CA's key.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="New name or address of the coordinator; repeat for more. Names of before stay."),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="With --host: the names of before count no more.")] = False,
    days: Annotated[float | None, typer.Option(min=0.0001, max=3650, help="Life in days. Default: as before.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Renew the coordinator's or an operator's certificate; a running coordinator takes it up by itself."""
    if only and not host:
        raise ConfigError("--only is for --host: name the names that count from now on")
    if (who is None) == (identity is None):
        raise ConfigError("say whose certificate to renew: `coordinator`, `operator/NAME`, or --identity DIR")
    if identity is not None:
        renew_over_network(identity, as_json=as_json)
        return

    federation = FederationPki.open(pki)
    principal = parse_principal(federation.federation, str(who))
    if principal.role is Role.CLIENT:
        raise ConfigError(
            f"the key of {principal} is at its site: run `kernfed-client renew` there; the daemon does it by itself"
        )
    is_coordinator = principal.role is Role.COORDINATOR
    path = federation.coordinator_folder if is_coordinator else federation.operator_folder(principal.name)
    if not path.exists():
        raise ConfigError(f"{path} does not exist: an operator elsewhere renews with --identity DIR")
    lifetime = timedelta(days=days) if days else None
    not_after = federation.renew_folder(path, lifetime=lifetime, hosts=host or (), only=only)
    _say_renewed({"principal": str(principal), "not_after": not_after}, path, as_json=as_json)


@app.command()
def key(identity: IdentityOption = None, as_json: JsonOption = False) -> None:
    """Print the fingerprint of an operator's key, which sites may name in policy.operator_keys."""
    loaded = Identity.load(find_identity(identity), check_dates=False)
    fingerprint = key_sha256(parse_key(loaded.key_pem, loaded.folder).public_key())
    if as_json:
        print_json({"principal": str(loaded.principal), "key_sha256": fingerprint})
    else:
        typer.echo(fingerprint)


@app.command()
def revoke(
    who: Annotated[
        str,
        typer.Argument(metavar="NAME|ROLE/NAME|SERIAL", help="A client's name, operator/NAME, or one serial number."),
    ],
    pki: PkiDir = _PKI,
    why: Annotated[str, typer.Option(help="Reason, for the records.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Revoke certificates and open tokens; a running coordinator cuts their holder off within seconds."""
    revoked = FederationPki.open(pki).revoke(who, why=why)
    if as_json:
        print_json([asdict(r) for r in revoked])
        return
    for r in revoked:
        typer.echo(f"Revoked {r.role}/{r.name}, serial {r.serial}")
    if not revoked:
        typer.echo(f"Nothing of {who} was left to revoke; open tokens, if any, are cancelled")


def renew_over_network(identity: Path, *, address: str | None = None, as_json: bool = False) -> None:
    """Renew an identity folder by the coordinator, and say until when it holds now."""
    log_to_stderr()
    renewed = asyncio.run(renew_remotely(Identity.load(identity), address=address))
    facts = {"principal": str(renewed.principal), "not_after": renewed.not_after, "serial": renewed.serial}
    _say_renewed(facts, identity, as_json=as_json)


def _say_renewed(facts: Mapping[str, Any], folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        typer.echo(f"Renewed {facts['principal']} until {moment(facts['not_after'])} in {folder}")
