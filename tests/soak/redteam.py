"""Every attack that the project knows, against real processes and true readers: one line each, with its outcome.

What counts as an attack bears the mark `redteam`: files named `test_hostile*.py`, all in tests/adversary, and tests
that say so. CI runs the same tests among all others. Ends with 1 where one attack is not held off.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


class Outcomes:
    """Gathers what became of each attack; the cases of one are shown as one."""

    def __init__(self) -> None:
        self._cases: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)
        self._broken: dict[str, str] = {}
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of one case."""
        attack = next((str(value) for name, value in report.user_properties if name == "attack"), report.nodeid)
        name, _, case = report.nodeid.partition("[")
        key = f"{attack}\n{name}"
        self._seconds[key] += report.duration
        if report.when == "call" or report.failed:
            self._cases[key] += report.when == "call"
        if report.failed:
            self._broken.setdefault(key, f"{'[' + case if case else ''} {said(report)} ({name})".strip())
        elif report.skipped:
            self._skipped[key] = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read holds no attack off."""
        if report.failed:
            self._broken[f"the attacks of {report.nodeid}\n"] = "its file cannot be collected"
            self._cases[f"the attacks of {report.nodeid}\n"] += 0

    def tell(self) -> int:
        """Print a line for each attack; how many broke something."""
        for key in sorted(self._cases | dict.fromkeys(self._skipped, 0)):
            attack = key.partition("\n")[0]
            cases = self._cases.get(key, 0)
            cost = f"({cases} {'cases' if cases > 1 else 'case'}, {self._seconds[key]:.1f} s)"
            if key in self._broken:
                print(f"BROKEN: {attack} {self._broken[key]}")
            elif not cases:
                print(f"not run: {attack} {self._skipped[key]}")
            else:
                print(f"held    {attack} {cost}")
        print(f"{len(self._cases)} attacks, {len(self._broken)} broken")
        return len(self._broken)


def said(report: pytest.TestReport) -> str:
    """What a case ended by, and where: the last error, for a wait that runs out begins with a cancelled task."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return f"failed in {report.when}: {str(report.longrepr).strip().splitlines()[-1:]}"
    return f"{(crash.message.splitlines() or [''])[0]} at {Path(crash.path).name}:{crash.lineno}"


def attacks() -> list[str]:
    """Files that hold an attack."""
    return [
        str(path)
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.name.startswith("test_hostile") or "adversary" in path.parts or "mark.redteam" in path.read_text()
    ]


def main(arguments: list[str]) -> int:
    """Run them; `arguments` go to pytest."""
    outcomes = Outcomes()
    plain = ["-m", "redteam", "-p", "no:terminal", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    ended = pytest.main(
        [*plain, *(arguments or ["-n", "2", "--dist", "worksteal", "--timeout", "600"]), *attacks()], plugins=[outcomes]
    )
    return 1 if outcomes.tell() or ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
