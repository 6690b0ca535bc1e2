"""`kernfed serve`: a model over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.models.predict import NetworksOption
from kernfed.errors import ConfigError
from kernfed.jobs.client_file import load_client_file
from kernfed.models.estimator import load_model
from kernfed.models.folder import facts_sha256
from kernfed.models.network_model import NetworkModel


def serve(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with model.safetensors and model.json.")],
    listen: Annotated[
        str, typer.Option(help="Address to listen on. There is no sign-in: let only your own programs reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: one that the system chooses.")] = 8080,
    certificate: Annotated[Path | None, typer.Option(help="PEM file, for TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file with the certificate's key.")] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1 …")] = "cpu",
    networks: NetworksOption = None,
) -> None:
    """Serve a model over HTTP: POST /predict takes a row or many as JSON, GET /schema tells the columns."""
    try:
        from kernfed.serving import server  # noqa: PLC0415  # needs packages that need not be there
    except ModuleNotFoundError as err:
        if err.name not in ("starlette", "uvicorn"):
            raise
        raise ConfigError(f"the package {err.name} is not installed here; pip install 'kernfed[web]'") from err
    if (certificate is None) != (key is None):
        raise ConfigError("--certificate and --key go together; give both, or none")
    found = load_model(model, device=device, network=None if networks is None else load_client_file(networks).networks)
    if isinstance(found.model, NetworkModel) and found.model.lacks_module:
        name = found.model.network.name
        raise ConfigError(
            f"{model} is network {name!r} of the clients' own, and its module is not here; add --networks FILE, a "
            f"client file with [networks.{name}]"
        )
    if note := found.job.get("note"):
        typer.echo(f"{model}: {note}", err=True)

    def ready(address: str) -> None:
        typer.echo(f"{address}/predict answers; Ctrl-C ends it")

    server.serve(found, facts_sha256(model), listen, port, certificate=certificate, key=key, ready=ready)
