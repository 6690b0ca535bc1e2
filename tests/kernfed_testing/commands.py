"""The console scripts, run as a person would: each a process of its own, with its own output."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from kernfed_testing import forked


async def run_command(
    name: str, *arguments: str, columns: int = 200, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `kernfed`, `kernfed-client` or another of this environment's commands to its end.

    Args:
        name: Of the console script.
        arguments: Of the command.
        columns: Width of the terminal that it is told of.
        cwd: Where it runs; here where unset.
    """
    told = {"COLUMNS": str(columns)}
    return await asyncio.to_thread(forked.run_command, name, *arguments, cwd=cwd or Path.cwd(), environment=told)
