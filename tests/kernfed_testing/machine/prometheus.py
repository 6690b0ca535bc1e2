"""A Prometheus of the tests' own, and its tool; from Debian's package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernfed_testing.limits import LIMIT_S, until
from kernfed_testing.machine.ports import free_port


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is; the test is skipped without, but on CI."""
    found = shutil.which(name)
    if found is None:
        assert not os.environ.get("CI"), "CI must test monitoring: apt-get install prometheus"
        pytest.skip("Prometheus is not installed (apt-get install prometheus)")
    return found


def promtool(*arguments: str, text: str = "") -> str:
    """Run the tool, which must succeed; gives what it said."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A server that scrapes."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def value(self, query: str) -> float | None:
        """Value of a query with one sample; None: there is none, or the server does not answer yet."""
        try:
            asked = f"{self._url}/query?{urllib.parse.urlencode({'query': query})}"
            with urllib.request.urlopen(asked, timeout=LIMIT_S) as page:
                found: list[dict[str, Any]] = json.load(page)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return None
        return float(found[0]["value"][1]) if found else None

    def alerts(self) -> set[str]:
        """Names of the rules that it knows."""
        with urllib.request.urlopen(f"{self._url}/rules", timeout=LIMIT_S) as page:
            groups = json.load(page)["data"]["groups"]
        return {rule["name"] for group in groups for rule in group["rules"]}


@contextmanager
def scraping(folder: Path, targets: dict[str, str], rules: Path) -> Iterator[Prometheus]:
    """A server that looks at the targets, by job, twice a second; its end removes it."""
    jobs = [
        {"job_name": name, "scrape_interval": "500ms", "static_configs": [{"targets": [where]}]}
        for name, where in targets.items()
    ]
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(json.dumps({"rule_files": [str(rules)], "scrape_configs": jobs}))  # YAML holds JSON
    command = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield Prometheus(port)
        finally:
            server.send_signal(signal.SIGKILL)
            server.wait(LIMIT_S)


def until_value(server: Prometheus, query: str, want: float) -> None:
    """Wait until a query has a value."""
    until(lambda: server.value(query) == want, f"{query} is {want}")
