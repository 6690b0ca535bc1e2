"""The operator's page over real TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernfed.errors import ConfigError
from kernfed.pki.identity import Role
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.ports import free_port
from kernfed_testing.worlds.page_world import token_in


def browser(fed: Federation, origin: str, folder: Path | None = None, **options: Any) -> httpx.AsyncClient:
    """A browser that trusts the federation's CA, and shows the certificate of an identity folder."""
    context = ssl.create_default_context(cafile=str(fed.identities.operator / "ca.pem"))
    if folder is not None:
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    headers = {"origin": origin}
    return httpx.AsyncClient(verify=context, base_url=origin, headers=headers, timeout=LIMIT_S, **options)


async def test_the_page_over_tls(tmp_path: Path) -> None:
    """A link signs in once; certificates sign in by their role; a revoked one, and one of another CA, stay out."""
    port = free_port()
    origin = f"https://127.0.0.1:{port}"
    async with Federation(tmp_path, ["a"], idle=["a"], coordinator=f"[web]\nport = {port}\n") as fed:
        link = await fed.operator.page_link()
        address, _, code = link.url.partition("#")
        assert address == f"{origin}/sign-in"
        async with browser(fed, origin) as visitor:
            assert (await visitor.get("/")).status_code == 401
            assert (await visitor.post("/sign-in", data={"code": code})).status_code == 303
            jobs = await visitor.get("/")
            assert jobs.status_code == 200
            assert "operator/ann" in jobs.text
            fields = {"form_token": token_in(jobs.text), "request_id": "1", "job_toml": fed.job("fedavg", rounds=3)}
            queued = await visitor.post("/submit", data=fields)
            assert queued.status_code == 303
            job_id = queued.headers["location"].rpartition("/")[2]
            assert (await fed.operator.get(job_id)).submission_sha256 == ""
            assert (await fed.operator.get(job_id)).submitted_by == "ann"
        async with browser(fed, origin, fed.identities.client("b")) as visitor:
            assert (await visitor.get("/clients")).status_code == 403
            assert "Jobs of b" in (await visitor.get("/")).text
        async with browser(fed, origin, fed.identities.operator) as visitor:
            token = token_in((await visitor.get(f"/jobs/{job_id}")).text)
            cancelled = await visitor.post(f"/jobs/{job_id}/cancel", data={"form_token": token})
            assert cancelled.status_code == 303
            assert "cancelled" in (await visitor.get(f"/jobs/{job_id}")).text
        bob = fed.identities.make(Role.OPERATOR, "bob")
        async with browser(fed, origin, bob) as visitor:
            assert (await visitor.get("/")).status_code == 200
            fed.identities.pki.revoke("operator/bob")
            async with asyncio.timeout(LIMIT_S):
                while (answer := await visitor.get("/")).status_code == 200:
                    await asyncio.sleep(0.1)
            assert answer.status_code == 401
            assert "was revoked" in answer.text


async def test_a_coordinator_without_a_page(tmp_path: Path) -> None:
    """`kernfed web` says which key is missing, and nothing listens."""
    async with Federation(tmp_path, ["a"], idle=["a"]) as fed:
        with pytest.raises(ConfigError, match=r"\[web\]"):
            await fed.operator.page_link()


async def test_a_taken_port_is_told(tmp_path: Path) -> None:
    """A coordinator whose page cannot listen does not start, and says why."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Exception, match=f"web: cannot listen on 127.0.0.1:{port}"):
            async with Federation(tmp_path, ["a"], idle=["a"], coordinator=f"[web]\nport = {port}\n"):
                pass
