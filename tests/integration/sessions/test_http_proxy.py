"""A site whose only way out is an HTTP proxy that asks for a password: a real squid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed.errors import UnavailableError
from kernfed.federation.events import JobState
from kernfed.jobs.client_file import load_client_file
from kernfed.pki.identity import Identity
from kernfed.pki.renewal import renew
from kernfed.pki.tls_diagnosis import diagnose
from kernfed.wire import proxy
from kernfed_client.enrol import enrol
from kernfed_testing.federation import Federation
from kernfed_testing.identities import make_identities
from kernfed_testing.machine.squid import PASSWORD, USER, Squid, squid
from kernfed_testing.worlds.bare_coordinator import serving


@pytest.fixture(autouse=True)
def _own_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that counts as another; what a test sets is gone at its end."""
    monkeypatch.setattr(proxy, "_is_here", lambda host: False)
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield
    proxy.use(None)


async def test_a_job_goes_through_a_proxy(tmp_path: Path) -> None:
    """Sessions, calls of operators and renewals are tunnels of the proxy; its password comes from a file."""
    async with Federation(tmp_path / "federation", ["a", "b"], idle=["a", "b"]) as fed:
        with squid(fed.ports.federation) as way:
            _name_proxy(fed, "a", way)
            proxy.use(load_client_file(fed.client_folder("a") / "client.toml").network.to_proxy())
            for name in ("a", "b"):
                await fed.clients[name].start()
            await fed.wait_connected("a", "b")
            ended = await fed.run(fed.job("dkrr"))
            assert ended.info.state is JobState.SUCCEEDED
            me = Identity.load(fed.client_folder("a") / "identity")
            found = await asyncio.to_thread(diagnose, f"localhost:{fed.ports.federation}", me)
            layers = ["identity", "dns", "tcp", "proxy", "tls", "mutual tls", "authorisation", "store"]
            assert [finding.layer.value for finding in found] == layers
            assert all(finding.ok for finding in found)
            await renew(me, address=f"localhost:{fed.ports.federation}")
            for name in ("a", "b"):
                await fed.clients[name].stop()
            assert way.tunnels(fed.ports.federation) >= 2


async def test_enrolment_goes_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the proxy before there is a client file; a wrong password is one sentence."""
    ids = make_identities(tmp_path)
    async with serving(ids) as coordinator:
        port = coordinator.enrolment_port
        with squid(port) as way:
            token = ids.pki.make_token("hungary")
            monkeypatch.setenv("https_proxy", f"http://{USER}:wrong@127.0.0.1:{way.port}")
            with pytest.raises(UnavailableError, match=r"refuses the name and password .*Basic"):
                await enrol(token, tmp_path / "site")
            monkeypatch.setenv("https_proxy", proxy.Proxy("127.0.0.1", way.port, USER, PASSWORD).url)
            assert (await enrol(token, tmp_path / "site")).name == "hungary"
            assert way.tunnels(port) >= 1


def _name_proxy(fed: Federation, name: str, way: Squid) -> None:
    folder = fed.client_folder(name)
    (folder / "password").write_text(f"{PASSWORD}\n")
    with (folder / "client.toml").open("a") as file:
        file.write(f'[network]\nproxy = "http://127.0.0.1:{way.port}"\nuser = "{USER}"\npassword_file = "password"\n')
