"""A federation whose addresses are of IPv6 alone."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from kernfed.jobs.client_file import load_client_file
from kernfed.pki.identity import Identity, Role
from kernfed.wire.operator_client import OperatorClient
from kernfed_client.app import ClientDaemon
from kernfed_server.app import Coordinator, Ports
from kernfed_server.config import load_coordinator_file
from kernfed_testing.federation import make_csv
from kernfed_testing.identities import make_identities
from kernfed_testing.limits import LIMIT_S


def has_ipv6() -> bool:
    """Whether this machine has a loopback of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_a_session_over_ipv6(tmp_path: Path) -> None:
    """Coordinator, client and operator meet at `[::1]`, by a certificate for that address."""
    ids = make_identities(tmp_path, hosts=("::1",))
    (tmp_path / "coordinator.toml").write_text('listen = "[::1]:0"\nenrolment_listen = "[::1]:0"\ndrain_s = 1.0\n')
    ports: asyncio.Queue[Ports] = asyncio.Queue()
    stop, connected = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        coordinator = Coordinator(load_coordinator_file(tmp_path / "coordinator.toml"))
        group.create_task(coordinator.run(stop, ports.put_nowait))
        address = f"[::1]:{(await ports.get()).federation}"
        ids.make(Role.CLIENT, "a", into=tmp_path / "identity")
        (tmp_path / "train.csv").write_text(make_csv("a"))
        (tmp_path / "client.toml").write_text(
            f'coordinator = "{address}"\ndevice = "cpu"\n[datasets.default.train]\npath = "train.csv"\n'
        )
        daemon = ClientDaemon(load_client_file(tmp_path / "client.toml"))
        group.create_task(daemon.run(stop, connected.set))
        await connected.wait()
        async with OperatorClient(Identity.load(ids.operator), address, timeout_s=LIMIT_S) as operator:
            (client,) = await operator.clients()
        stop.set()
    assert (client.name, client.connected) == ("a", True)
    assert client.peer.startswith("ipv6:")
