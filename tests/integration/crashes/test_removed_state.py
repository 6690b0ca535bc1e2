"""A client whose state folder was removed refuses jobs on data until its site says that the folder is new."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from kernfed.federation.events import JobState
from kernfed_client.commands.new_state import new_state
from kernfed_client.daemon.audit import AUDIT_FILE
from kernfed_client.daemon.health import HEALTH_FILE
from kernfed_client.daemon.state_mark import TO_OPERATORS
from kernfed_testing.federation import Federation
from kernfed_testing.nodes import until


async def test_a_removed_state_folder_is_told_and_given_up(tmp_path: Path) -> None:
    """The job, its operators' list, the audit log and `health` say so; a probe is answered, and jobs on data later on.

    Later is once the folder was given up.
    """
    async with Federation(tmp_path, ["a"]) as fed:
        state = fed.client_folder("a") / "state"
        assert (await fed.run(fed.job("dkrr"))).info.state is JobState.SUCCEEDED
        await fed.clients["a"].stop()
        await asyncio.to_thread(shutil.rmtree, state)
        await fed.clients["a"].start()
        await fed.wait_connected("a")
        refused = await fed.run(fed.job("dkrr"))
        assert refused.info.state is JobState.FAILED
        assert "the state folder is not the one that this client had" in refused.info.error_message
        assert "kernfed-client new-state" in (state / AUDIT_FILE).read_text()
        assert (await fed.run(fed.job("probe"))).info.state is JobState.SUCCEEDED
        await until(lambda: "state folder" in json.loads((state / HEALTH_FILE).read_text())["waits"])
        await until(lambda: fed.sessions.clients()["a"].trouble == TO_OPERATORS)
        assert [client.trouble for client in await fed.operator.clients()] == [TO_OPERATORS]
        await asyncio.to_thread(new_state, fed.client_folder("a") / "client.toml")
        await until(lambda: fed.sessions.clients()["a"].trouble == "")
        assert (await fed.run(fed.job("dkrr"))).info.state is JobState.SUCCEEDED
