"""The health service over real sockets, and the commands that probe it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kernfed.errors import UnavailableError
from kernfed.pki.folder import ABOUT
from kernfed.pki.identity import (
    Identity,
    channel_credentials,
    enrolment_channel_credentials,
    enrolment_server_credentials,
)
from kernfed.wire.health import SERVICES, check_health
from kernfed_client.daemon.health import HEALTH_FILE
from kernfed_server.services.health import Health
from kernfed_testing.commands import run_command
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until

SERVING = health_pb2.HealthCheckResponse.SERVING


async def command(name: str, *arguments: str, cwd: Path) -> tuple[int, str]:
    """Run one of our commands; returns exit status and all that it printed."""
    done = await run_command(name, *arguments, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


async def test_both_commands_say_that_all_is_well(tmp_path: Path) -> None:
    """Coordinator and client of a running federation pass their probes, and not after they stopped."""
    async with Federation(tmp_path, ["a"]) as fed:
        address = f"127.0.0.1:{fed.ports.enrolment}"
        site = fed.client_folder("a")
        await until(lambda: (site / "state" / HEALTH_FILE).exists())
        for service in SERVICES:
            await check_health(address, fed.identities.coordinator, service=service)
        assert await command("kernfed-coordinator", "health", "--address", address, cwd=tmp_path) == (0, "serving\n")
        await fed.coordinator.stop()
        status, text = await command("kernfed-coordinator", "health", "--address", address, cwd=tmp_path)
        assert status == 4
        assert text.startswith("error: ")


async def test_a_store_that_is_lost_is_told_to_probes_and_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk has no space the coordinator lives and is not ready, and the doctor's last layer fails."""
    monkeypatch.setattr("kernfed_server.keeping.database.HOLD_EVERY_S", 0.05)
    async with Federation(tmp_path, ["a"], idle=["a"]) as fed:
        address = f"127.0.0.1:{fed.ports.enrolment}"
        probe = ("kernfed-coordinator", "health", "--ready", "--address", address)
        assert await command(*probe, cwd=tmp_path) == (0, "ready\n")
        monkeypatch.setattr("kernfed_server.keeping.database.LEAST_FREE_BYTES", 1 << 62)

        async def fails() -> bool:
            status, text = await command(*probe, cwd=tmp_path)
            return status == 4 and "its database or disk cannot be used" in text

        async with asyncio.timeout(LIMIT_S):
            while not await fails():
                pass
        await check_health(address, fed.identities.coordinator)
        about = fed.identities.operator / ABOUT
        places = {"coordinator": fed.ports.federation, "enrolment": fed.ports.enrolment}
        dialled = {key: f"localhost:{port}" for key, port in places.items()}
        about.write_text(json.dumps({**json.loads(about.read_text()), **dialled}))
        status, text = await command("kernfed", "doctor", "--identity", str(about.parent), cwd=tmp_path)
        assert status == 4
        assert "FAIL  store" in text
        monkeypatch.setattr("kernfed_server.keeping.database.LEAST_FREE_BYTES", 1)
        async with asyncio.timeout(LIMIT_S):
            while await fails():
                pass


async def test_client_probe_follows_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's probe passes with a session and fails without one."""
    monkeypatch.setattr("kernfed_client.daemon.health.WRITE_INTERVAL_S", 0.05)
    async with Federation(tmp_path, ["a"]) as fed:
        site = fed.client_folder("a")
        health_file = site / "state" / HEALTH_FILE
        await until(lambda: health_file.exists() and '"connected": true' in health_file.read_text())
        assert await command("kernfed-client", "health", cwd=site) == (0, "connected\n")
        await fed.coordinator.stop()
        await until(lambda: '"connected": false' in health_file.read_text())
        status, text = await command("kernfed-client", "health", cwd=site)
        assert status == 4
        assert "no session" in text


async def test_who_may_watch(tmp_path: Path) -> None:
    """With a certificate one may watch, and sees the coordinator go; without one, only ask."""
    async with Federation(tmp_path, ["a"]) as fed, contextlib.AsyncExitStack() as stack:
        operator = Identity.load(fed.identities.operator)
        port, enrolment = fed.ports.federation, fed.ports.enrolment
        known = await stack.enter_async_context(
            grpc.aio.secure_channel(f"localhost:{port}", channel_credentials(operator))
        )
        anonymous = await stack.enter_async_context(
            grpc.aio.secure_channel(f"localhost:{enrolment}", enrolment_channel_credentials(operator.ca_pem))
        )
        request = health_pb2.HealthCheckRequest()
        watch = health_pb2_grpc.HealthStub(known).Watch(request, timeout=LIMIT_S)
        assert (await watch.read()).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in health_pb2_grpc.HealthStub(anonymous).Watch(request, timeout=LIMIT_S):
                pass
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (await health_pb2_grpc.HealthStub(anonymous).Check(request, timeout=LIMIT_S)).status == SERVING
        stopping = asyncio.ensure_future(fed.coordinator.stop())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        await stopping


async def test_starting_coordinator_does_not_serve(tmp_path: Path) -> None:
    """Between the first port that answers and the last, the answer is that it does not serve."""
    async with Federation(tmp_path, ["a"], idle=["a"]) as fed:
        health = Health()
        await health.starting()
        server = grpc.aio.server()
        health.add_to(server, with_watch=False)
        port = server.add_secure_port("127.0.0.1:0", enrolment_server_credentials(fed.identities.coordinator))
        await server.start()
        with pytest.raises(UnavailableError, match="NOT_SERVING: it is starting or stopping"):
            await check_health(f"127.0.0.1:{port}", fed.identities.coordinator)
        await health.serving()
        await check_health(f"127.0.0.1:{port}", fed.identities.coordinator)
        await server.stop(0)
