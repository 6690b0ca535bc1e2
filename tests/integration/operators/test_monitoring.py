"""Monitoring: a real Prometheus, with the rules of `deploy/monitoring`, scrapes a coordinator and a client."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.ports import free_port
from kernfed_testing.machine.prometheus import promtool, scraping, until_value

MONITORING = Path(__file__).resolve().parents[3] / "deploy" / "monitoring"


def test_the_files_are_what_prometheus_reads() -> None:
    """Promtool finds no fault in the configuration and its rules."""
    assert "SUCCESS" in promtool("check", "config", str(MONITORING / "prometheus.yml"))
    assert "rules found" in promtool("check", "rules", str(MONITORING / "alerts.yml"))


async def test_a_job_is_seen_by_prometheus(tmp_path: Path) -> None:
    """Rounds, bytes and end arrive, as does what left a client; promtool likes names and types."""
    coordinator, client = free_port(), free_port()
    told = f'metrics_listen = "127.0.0.1:{coordinator}"'
    async with Federation(tmp_path / "fed", ["a", "b"], idle=["a"], coordinator=told) as fed:
        file = fed.client_folder("a") / "client.toml"
        file.write_text(f"metrics_port = {client}\n{file.read_text()}")
        await fed.clients["a"].start()
        targets = {"kernfed-coordinator": f"127.0.0.1:{coordinator}", "kernfed-client": f"127.0.0.1:{client}"}
        with scraping(tmp_path, targets, MONITORING / "alerts.yml") as server:
            await fed.run(fed.job("fedavg", rounds=3))
            for query, want in (
                ('up{job="kernfed-coordinator"}', 1.0),
                ("kernfed_connected_clients", 2.0),
                ('kernfed_rounds_total{method="fedavg"}', 3.0),
                ('kernfed_jobs_ended_total{method="fedavg",state="succeeded"}', 1.0),
                ("sum(kernfed_request_bytes_total) > bool 0", 1.0),
                ("sum(kernfed_reply_bytes_total) > bool 0", 1.0),
                ('kernfed_answer_seconds_count{step="fedavg.local_update"}', 6.0),
                ("kernfed_client_connected", 1.0),
                ('kernfed_client_replies_total{step="fedavg.local_update"}', 3.0),
            ):
                await asyncio.to_thread(until_value, server, query, want)
            assert "KernfedClientAway" in await asyncio.to_thread(server.alerts)
        for port in (coordinator, client):
            promtool("check", "metrics", text=await asyncio.to_thread(_page, port))


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as page:
        text: str = page.read().decode()
    return text
