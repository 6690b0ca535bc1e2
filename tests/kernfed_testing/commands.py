"""The console scripts, run as a person would: each a process of its own, with its own output."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

LIMIT_S = 100.0


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
    return await asyncio.to_thread(
        subprocess.run,
        [str(Path(sys.executable).parent / name), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env={**os.environ, "COLUMNS": str(columns)},
    )
