"""`kernfed client`: the clients of the federation, as the coordinator sees them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from kernfed.cli.client_text import days_left_text, state_text
from kernfed.cli.operator_options import CoordinatorOption, IdentityOption, with_operator
from kernfed.cli.output import JsonOption, new_app, print_json, print_table
from kernfed.jobs.info import split_platform
from kernfed.wire.operator_client import OperatorClient
from kernfed.wording import clean

app = new_app("See the clients of the federation.")


@app.callback()
def _group() -> None:
    """See the clients of the federation."""


@app.command("list")
def list_clients(
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """List clients: who is connected, with which data sets, on what device, at work for which jobs."""
    clients = with_operator(identity, coordinator, OperatorClient.clients)
    if as_json:
        print_json([asdict(client) for client in clients])
        return
    now = datetime.now(UTC)
    rows = [
        [
            client.name,
            state_text(client),
            clean(", ".join(client.datasets)),
            clean(split_platform(client.device)[0]),
            clean(client.software_version),
            client.last_seen_at and client.last_seen_at.astimezone(),
            days_left_text(client, now),
            ", ".join(client.job_ids),
        ]
        for client in clients
    ]
    columns = ["client", "state", "data sets", "device", "release", "last seen", "valid", "jobs"]
    print_table(columns, rows)
