"""`kernfed-client peers`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, print_json
from kernfed.errors import ConfigError
from kernfed.jobs.client_file import load_client_file
from kernfed.pki.folder import key_sha256, parse_certificate, read_pair
from kernfed.pki.names import check_name


def peers(
    config: Annotated[Path, typer.Option(help="Client file, as for `run`.")] = Path("client.toml"),
    accept: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Name of another site, and the fingerprint that it is known by there."),
    ] = None,
    remove: Annotated[str | None, typer.Option(help="Name of a site that is accepted no more.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the fingerprint of this site's key, and those of the sites that it accepted for secure sums.

    Compare fingerprints by another way than the federation, by telephone or on paper: the coordinator may hold the CA's
    key, and can make a certificate of any name. A daemon that runs takes a change when it starts again.
    """
    from kernfed_client.sums import peers as kept  # noqa: PLC0415  # loads what other commands do without

    file = load_client_file(config)
    own = _own(file.identity)
    found = kept.read(file.identity)
    if accept is not None:
        name, key = check_name(accept[0], "site"), accept[1].lower().replace(":", "")
        if not re.fullmatch(r"[0-9a-f]{64}", key):
            raise ConfigError(f"{accept[1][:80]!r} is no fingerprint: these are 64 hexadecimal digits")
        if key == own:
            raise ConfigError("this is the fingerprint of this site's own key; accept that which the other site prints")
        if file.policy.secure_sum.peers.get(name, key) != key:
            raise ConfigError(f"policy.secure_sum.peers in {config} names another key of {name}; change it there")
        kept.write(file.identity, found | {name: key})
    if remove is not None:
        if remove not in found:
            raise ConfigError(f"{remove!r} is not among the sites that `kernfed-client peers --accept` keeps")
        kept.write(file.identity, {name: key for name, key in found.items() if name != remove})
    accepted = kept.accepted(file)
    if as_json:
        print_json({"own": own, "peers": dict(sorted(accepted.items()))})
        return
    typer.echo(f"{own}  this site")
    for name, key in sorted(accepted.items()):
        typer.echo(f"{key}  {name}")


def _own(identity: Path) -> str:
    key = parse_certificate(read_pair(identity).certificate_pem, identity).public_key()
    return key_sha256(key)  # type: ignore[arg-type]  # `read_pair` refuses other kinds of keys
