"""What both daemons write is for their own user alone, whatever the umask; SIGHUP does not end them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kernfed.federation.events import JobState
from kernfed_testing.federation import Federation


def open_to_others(folder: Path) -> dict[str, str]:
    """Files and folders below a folder, and itself, that somebody else may read, write or enter, with their modes."""
    modes = {path: path.lstat().st_mode & 0o777 for path in (folder, *folder.rglob("*")) if not path.is_socket()}
    return {str(path): f"{mode:04o}" for path, mode in modes.items() if mode & 0o077}


@pytest.mark.redteam
async def test_files_are_private_and_sighup_is_survived(tmp_path: Path) -> None:
    """Under umask 000, daemons that got a SIGHUP do a job, and all they wrote is theirs alone."""
    fed = Federation(tmp_path, ["a", "b"], processes=True, fresh=True)
    before = os.umask(0)
    try:
        async with fed:
            daemons = (fed.coordinator, *fed.clients.values())
            pids = [daemon.pid for daemon in daemons]
            for pid in pids:
                os.kill(pid, signal.SIGHUP)
            job = fed.job("fedavg", rounds=2, cohort_min_clients=2)
            assert (await fed.run(job)).info.state is JobState.SUCCEEDED
            for daemon in daemons:
                await daemon.saw("SIGHUP changes nothing: restart the service to read its file again")
            assert [daemon.pid for daemon in daemons] == pids
            folders = [tmp_path / "data", *(fed.client_folder(name) / "state" for name in ("a", "b"))]
            assert {path: mode for folder in folders for path, mode in open_to_others(folder).items()} == {}
    finally:
        os.umask(before)
