"""`kernfed pki` as a person and as a program sees it, in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from kernfed.pki.tokens import decode_token
from kernfed_testing.forked import run_command
from kernfed_testing.limits import LIMIT_S

pytestmark = pytest.mark.slow


class Run(Protocol):
    """Runs a command, and holds it to its exit code."""

    def __call__(
        self, *arguments: str, code: int = 0, program: str = "kernfed"
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def kernfed(tmp_path: Path) -> Run:
    def run(*arguments: str, code: int = 0, program: str = "kernfed") -> subprocess.CompletedProcess[str]:
        done = run_command(program, *arguments, cwd=tmp_path)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return run


def test_life_of_a_federation(kernfed: Run, tmp_path: Path) -> None:
    """Init, token, offline signing, renewal and revocation, with JSON on stdout and remarks on stderr."""
    made = json.loads(kernfed("pki", "init", "--federation", "hearts", "--host", "fed.org", "--json").stdout)
    assert made["coordinator"] == "fed.org:8470"
    token = kernfed("pki", "token", "cleveland", "--hours", "1")
    assert token.stdout.count("\n") == 1
    assert decode_token(token.stdout).enrolment == "fed.org:8471"
    assert abs(decode_token(token.stdout).expires - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
    kernfed("csr", "--name", "hungary", "--identity", "site", program="kernfed-client")
    kernfed("pki", "sign", "site/request.csr", "--as", "client/hungary", "--days", "5")
    installed = kernfed("install-cert", "hungary.pem", "--identity", "site", program="kernfed-client")
    assert "client/hungary of hearts" in installed.stdout
    (operator,) = (path.name for path in (tmp_path / "pki").glob("operator-*"))
    pinned = kernfed("pki", "key").stdout
    kernfed("pki", "renew", operator.replace("-", "/", 1))
    assert json.loads(kernfed("pki", "key", "--json").stdout)["key_sha256"] == pinned.strip()
    assert len(pinned.strip()) == 64
    kernfed("pki", "renew", "coordinator", "--host", "new.org", "--only")
    listed = json.loads(kernfed("pki", "list", "--json").stdout)
    states = {(c["role"], c["via"]): c["state"] for c in listed["certificates"]}
    assert states["client", "csr"] == "valid"
    assert ("coordinator", "renewal") in states
    assert [t["state"] for t in listed["tokens"]] == ["open"]
    (revoked,) = json.loads(kernfed("pki", "revoke", "hungary", "--why", "moved", "--json").stdout)
    assert revoked["name"] == "hungary"
    table = kernfed("pki", "list").stdout
    (line,) = (line for line in table.splitlines() if "client/hungary" in line)
    assert line.split()[1:3] == ["revoked", "moved"]
    assert not table.isspace()
    assert "\x1b" not in table


def test_errors_are_one_line(kernfed: Run) -> None:
    """Each mistake is one line on stderr that tells what to do, with its own exit code, and no traceback."""
    for arguments, code, words in [
        (("pki", "list"), 3, "pki init"),
        (("pki", "init", "--federation", "No Caps"), 3, "not a valid name"),
        (("pki", "bogus"), 2, "bogus"),
        (("pki", "init"), 2, "--federation"),
        (("doctor", "--identity", "nowhere"), 4, "identity.json is missing"),
    ]:
        done = kernfed(*arguments, code=code)
        assert words in done.stderr
        if code != 2:
            assert done.stderr.count("\n") == 1
            assert done.stdout == ""
    kernfed("pki", "init", "--federation", "hearts")
    assert "nothing was changed" in kernfed("pki", "init", "--federation", "hearts", code=3).stderr
    assert "client/NAME" in kernfed("pki", "revoke", "admin/x", code=3).stderr
    assert "pki list" in kernfed("pki", "revoke", "nobody", code=4).stderr


def test_damaged_token(kernfed: Run) -> None:
    """A token that was cut short is refused before anything is made or sent."""
    done = kernfed("enrol", "kft1.abc", code=4, program="kernfed-client")
    assert "copy the whole line again" in done.stderr
    assert "warning: a token among the arguments" in done.stderr


def test_a_token_comes_by_file(kernfed: Run, tmp_path: Path) -> None:
    """A file holds the token, with or without what mail programs put into it; nothing of it is among the arguments."""
    (tmp_path / "good.token").write_text("kft1.\n abc\n")
    (tmp_path / "empty.token").write_text("\n")
    for file, code, told in [
        ("good.token", 4, "copy the whole line again"),
        ("empty.token", 3, "holds no token"),
        ("none.token", 3, "cannot be read"),
    ]:
        done = kernfed("enrol", "--token-file", file, code=code, program="kernfed-client")
        assert told in done.stderr
        assert "warning" not in done.stderr
    for arguments in ((), ("kft1.abc", "--token-file", "good.token")):
        assert "--token-file FILE" in kernfed("enrol", *arguments, code=3, program="kernfed-client").stderr


def test_debug_shows_the_trace(tmp_path: Path) -> None:
    """`--debug` before the command shows where an error was raised."""
    command = [sys.executable, "-c", "from kernfed.cli.main import main; main()", "--debug", "pki", "list"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 3
    assert "Traceback" in done.stderr


def test_start_up_imports_nothing_heavy(tmp_path: Path) -> None:
    """`kernfed --help` needs neither torch nor pandas nor grpc."""
    code = (
        "import sys\nfrom kernfed.cli.main import app\n"
        "print(*[m for m in ('torch', 'pandas', 'grpc', 'scipy', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.split() == []
