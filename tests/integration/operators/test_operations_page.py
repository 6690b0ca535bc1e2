"""docs/operations.md, run as it stands: the audit log, a backup, and a second operator."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from kernfed.federation.events import EventKind
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.places import ROOT

PAGE = ROOT / "docs" / "operations.md"


def blocks(heading: str) -> list[str]:
    """The commands of a section."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


OURSELVES = """
as() { (cd "$PLACE"; shift; "$@"); }
install() { cp "${@: -2:1}" "${@: -1}"; }
"""
"""There is no user of the daemons here: what the page does as that user is done as ours."""


async def run(block: str, folder: Path, place: Path | None = None) -> str:
    """Run a block in a folder, which is the home too, and return what it printed; `place` is the daemon's folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-euc", OURSELVES + block],
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(folder), "COLUMNS": "200", "PLACE": str(place or folder)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


async def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    """Audit over rotated files, a backup and its restore in mid-job, and an operator who was signed offline."""
    root = tmp_path / "federation"
    async with Federation(root, ["a"], idle=["a"]) as fed:
        config = fed.client_folder("a") / "client.toml"
        config.write_text(f"audit_file_bytes = 4096\n{config.read_text()}")
        await fed.clients["a"].start()
        await fed.wait_connected("a")
        job = await fed.submit(fed.job("fedavg", rounds=40))
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=5)
        stop, copy, start = blocks("Backups")[0].splitlines()
        assert (stop, start) == ("systemctl stop kernfed-coordinator", "systemctl start kernfed-coordinator")
        await fed.coordinator.stop()
        await run(copy.replace("-C /var/lib/kernfed-coordinator", f"--exclude=./clients -C {root}"), tmp_path)
        restore = blocks("Backups")[1].splitlines()[1].replace("/var/lib/kernfed-coordinator", str(root))
        for folder in ("data", "pki"):
            await asyncio.to_thread(shutil.rmtree, root / folder)
        await run(restore, tmp_path)
        await fed.start_coordinator()
        await fed.wait_connected("a")
        await fed.model_sha256(await fed.end(job.job_id))

        site = fed.client_folder("a")
        both, archived = (b.replace("/etc/kernfed/", "") for b in blocks("The audit log of a client"))
        told = await run(both, site)
        assert "files before it" in told
        assert "every line follows" in told
        assert "every line follows" in await run(archived, site)

        bob, beside_ca = tmp_path / "bob", tmp_path / "ca"
        bob.mkdir()
        beside_ca.mkdir()
        fed.identities.set_ports(fed.ports.federation, fed.ports.enrolment)
        ask, sign, _, install = blocks("A second operator")
        assert "--as operator/bob" in await run(ask, bob)
        shutil.copy(bob / ".kernfed" / "operator" / "request.csr", beside_ca)
        await run(sign.replace("/var/lib/kernfed-coordinator", str(root)), beside_ca, root)
        shutil.copy(beside_ca / "bob.pem", bob)
        told = await run(install, bob)
        assert "operator/bob of hearts" in told
        assert "kernfed doctor --identity" in told
