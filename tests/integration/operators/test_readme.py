"""README.md's "Ten minutes, by hand", run as it stands: every command, in order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernfed_testing.limits import LIMIT_S
from kernfed_testing.places import ROOT

HEADING = "Ten minutes, by hand"
SETUP = "make setup\nsource .venv/bin/activate\n"
COORDINATOR = "kernfed-coordinator run\n"
LOOPBACK = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    fcntl.ioctl(made, 0x8914, struct.pack("16sH14s", b"lo", 0x49, b""))
"""
"""SIOCSIFFLAGS: up, loopback, running; the page's ports are fixed, so that it runs in a network of its own."""


def blocks() -> list[tuple[str, str]]:
    """Language and commands of each block of the section, in order."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split(f"\n## {HEADING}\n")[1].split("\n## ")[0]
    return re.findall(r"^```(\w*)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def script() -> str:
    """The section as one program of bash, each block behind a line that numbers it."""
    lines = [f"{sys.executable} -c '{LOOPBACK}'"]
    for number, (language, text) in enumerate(blocks()):
        lines.append(f"echo '=== block {number}'")
        if language == "python":
            lines.append(f"{sys.executable} - <<'END'\n{text}END")
        elif text == COORDINATOR:
            lines.append(f"{text.strip()} >coordinator.log 2>&1 &")
            lines.append("until kernfed doctor >/dev/null 2>&1; do sleep 0.2; done")
        elif text != SETUP:
            lines.append(text)
    return "\n".join(lines)


@pytest.mark.timeout(3 * LIMIT_S)
def test_every_command_works_as_printed(tmp_path: Path) -> None:
    """From an empty CA to a prediction, a simulation and a client that is cut off; nothing ends with an error."""
    texts = [text for _, text in blocks()]
    assert SETUP in texts
    assert COORDINATOR in texts
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("identity", "state"))
    done = subprocess.run(
        ["unshare", "-rn", "--pid", "--fork", "--kill-child", "bash", "-euo", "pipefail", "-c", script()],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "COLUMNS": "110",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    told = re.split(r"^=== block \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert done.returncode == 0, done.stdout[-4000:]
    assert len(told) == len(texts)
    assert "Traceback" not in done.stdout
    shown = dict(zip(texts, told, strict=True))
    watched = next(text for text in texts if "kernfed job watch" in text)
    assert "succeeded after round" in shown[watched]
    fetched = next(text for text in texts if "kernfed predict" in text)
    assert (tmp_path / re.findall(r"--out (\S+\.csv)", fetched)[0]).stat().st_size > 0
