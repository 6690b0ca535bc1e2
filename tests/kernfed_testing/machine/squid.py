"""A squid of the tests' own, which asks for a name and a password; from Debian's package."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernfed_testing.limits import LIMIT_S, until
from kernfed_testing.machine.ports import free_port

USER, PASSWORD = "hospital", "pass word:1"
_HELPER = Path("/usr/lib/squid/basic_ncsa_auth")


def _program() -> str:
    found = shutil.which("squid", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None or not _HELPER.exists():
        assert not os.environ.get("CI"), "CI must test the way through a proxy: apt-get install squid"
        pytest.skip("squid is not installed (apt-get install squid)")
    return found


@dataclass(frozen=True)
class Squid:
    """One that runs."""

    port: int
    log: Path

    def tunnels(self, port: int) -> int:
        """Tunnels to a port that it opened and that are over: it writes a line at the end of each."""
        lines = self.log.read_text().splitlines()
        return sum(f"CONNECT localhost:{port} " in line and "TCP_TUNNEL/200" in line for line in lines)


@contextlib.contextmanager
def squid(*allowed: int) -> Iterator[Squid]:
    """A proxy on loopback that opens tunnels to these ports alone, for whoever knows the password."""
    with tempfile.TemporaryDirectory(prefix="kernfed-squid-") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o777)  # as root it gives up its rights, and then writes here
        digest = subprocess.run(
            ["openssl", "passwd", "-apr1", "-stdin"], input=PASSWORD, capture_output=True, text=True, check=True
        ).stdout.strip()
        (folder / "passwords").write_text(f"{USER}:{digest}\n")
        log = folder / "access.log"
        config = folder / "squid.conf"
        config.write_text(
            f"http_port 127.0.0.1:{port}\n"
            f"auth_param basic program {_HELPER} {folder}/passwords\nauth_param basic children 1 startup=1\n"
            f"acl known proxy_auth REQUIRED\nacl coordinator port {' '.join(map(str, allowed))}\n"
            "http_access allow CONNECT coordinator known\nhttp_access deny all\n"
            f"access_log stdio:{log}\ncache_log {folder}/cache.log\ncache deny all\nlogfile_rotate 0\n"
            "pid_filename none\nshutdown_lifetime 0 seconds\nnetdb_filename none\n"
        )
        command = [_program(), "-N", "-f", str(config)]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                until(lambda: _listens(port) or server.poll() is not None, "squid listens")
                told = (folder / "cache.log").read_text() if server.poll() is not None else ""
                assert server.poll() is None, told
                yield Squid(port, log)
            finally:
                server.kill()
                server.wait(LIMIT_S)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
