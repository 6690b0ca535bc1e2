"""`kernfed_server.services.metrics`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import ClientInfo, JobInfo
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Role
from kernfed.pki.records import IssuedCertificate
from kernfed_client.daemon.metrics import ClientMetrics
from kernfed_server.services.metrics import CoordinatorMetrics

MONITORING = Path(__file__).resolve().parents[4] / "deploy" / "monitoring"

SEEN = datetime(2026, 5, 4, tzinfo=UTC)


@dataclass
class Sessions:
    """Client a is here and in trouble, b is away, c was revoked."""

    sent_bytes: Counter[str] = field(default_factory=lambda: Counter({"dkrr.solve": 300}))
    received_bytes: Counter[str] = field(default_factory=lambda: Counter({"dkrr.solve": 80}))

    def present(self) -> frozenset[str]:
        """Those with a session."""
        return frozenset({"a"})

    def clients(self) -> Mapping[str, ClientInfo]:
        """Those that were ever here."""
        return {
            "a": ClientInfo("a", connected=True, trouble="waits for space on its disk", last_seen_at=SEEN),
            "b": ClientInfo("b", connected=False, last_seen_at=SEEN),
            "c": ClientInfo("c", connected=False),
        }

    def revoked(self) -> Mapping[str, str]:
        """Those without a certificate."""
        return {"c": ""}


def certificate(name: str, days: float, role: Role = Role.CLIENT) -> IssuedCertificate:
    """One that ends in so many days."""
    now = utc_now()
    end = now + timedelta(days=days)
    return IssuedCertificate(name, role, name, now - timedelta(days=9), end, now, "token", None, "")


def job(state: JobState = JobState.RUNNING, **more: object) -> JobInfo:
    """One of ridge regression."""
    info = JobInfo("j-1", "risk", "dkrr", state, "ann", SEEN, clients=("a", "b"))
    return replace(info, **more)  # type: ignore[arg-type]


def told(metrics: CoordinatorMetrics) -> dict[str, float]:
    """A scrape: sample with its labels to value."""
    lines = [line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_clients_are_told_by_name(tmp_path: Path) -> None:
    """Who is here, who is in trouble, who was heard when; a revoked client raises no alarm."""
    found = told(CoordinatorMetrics(Sessions(), tuple, tmp_path))
    assert found["kernfed_connected_clients"] == 1
    assert found['kernfed_client_present{client="a"}'] == 1
    assert found['kernfed_client_present{client="b"}'] == 0
    assert found['kernfed_client_troubled{client="a"}'] == 1
    assert found['kernfed_client_last_heard_timestamp_seconds{client="b"}'] == SEEN.timestamp()
    assert not [sample for sample in found if 'client="c"' in sample]
    assert found["kernfed_data_free_bytes"] > 0
    assert found['kernfed_request_bytes_total{step="dkrr.solve"}'] == 300
    assert found['kernfed_reply_bytes_total{step="dkrr.solve"}'] == 80


def test_a_job_is_counted_from_its_rounds_to_its_end(tmp_path: Path) -> None:
    """Rounds, answers, absences, errors, checkpoints and ends are counted, and nothing of the job is kept after it."""
    metrics = CoordinatorMetrics(Sessions(), tuple, tmp_path)
    info = job()
    for event in (
        JobEvent(EventKind.ROUND_OPENED, 1),
        JobEvent(EventKind.STEP_ASKED, 1, "dkrr.solve"),
        JobEvent(EventKind.CLIENT_ANSWERED, 1, "dkrr.solve", "a"),
        JobEvent(EventKind.CLIENT_MISSING, 1, "dkrr.solve", "b"),
        JobEvent(EventKind.CLIENT_FAILED, 1, "dkrr.solve", "b", "few rows", "REFUSED_BY_POLICY"),
        JobEvent(EventKind.CLIENT_FAILED, 1, "dkrr.solve", "b", "", "MADE_UP_BY_A_PEER"),
        JobEvent(EventKind.ROUND_CLOSED, 1),
    ):
        metrics.event(info, event)
    metrics.checkpointed(0.2)
    metrics.follow(lambda: [info, job(JobState.QUEUED), job(waiting_for="waiting for b")])
    found = told(metrics)
    assert found['kernfed_rounds_total{method="dkrr"}'] == 1
    assert found['kernfed_round_seconds_count{method="dkrr"}'] == 1
    assert found['kernfed_answer_seconds_count{step="dkrr.solve"}'] == 1
    assert found['kernfed_client_missed_steps_total{client="b"}'] == 1
    assert found['kernfed_client_failures_total{client="b",reason="REFUSED_BY_POLICY"}'] == 1
    assert found['kernfed_client_failures_total{client="b",reason="OTHER"}'] == 1
    assert found['kernfed_checkpoint_seconds_bucket{le="0.3"}'] == 1
    assert found['kernfed_jobs{state="running"}'] == 2
    assert found['kernfed_jobs{state="queued"}'] == 1
    assert found["kernfed_jobs_waiting"] == 1
    metrics.over(job(JobState.FAILED, error_reason="DIVERGED"))
    assert told(metrics)['kernfed_jobs_ended_total{method="dkrr",reason="DIVERGED",state="failed"}'] == 1
    metrics.event(info, JobEvent(EventKind.CLIENT_ANSWERED, 1, "dkrr.solve", "b"))
    assert told(metrics)['kernfed_answer_seconds_count{step="dkrr.solve"}'] == 1


def test_the_last_certificate_of_each_holder_counts(tmp_path: Path) -> None:
    """One that was renewed raises no alarm by the one before, and an expired one none at all."""
    issued = [certificate("a", 3), certificate("a", 60), certificate("b", -1), certificate("ann", 5, Role.OPERATOR)]
    found = told(CoordinatorMetrics(Sessions(), lambda: issued, tmp_path))
    name = "kernfed_certificate_end_timestamp_seconds"
    assert found[f'{name}{{name="a",role="client"}}'] == pytest.approx(issued[1].not_after.timestamp())
    assert found[f'{name}{{name="ann",role="operator"}}'] == pytest.approx(issued[3].not_after.timestamp())
    assert f'{name}{{name="b",role="client"}}' not in found


def test_alerts_and_board_name_metrics_that_are_told(tmp_path: Path) -> None:
    """Each name in `deploy/monitoring` is one of a coordinator's or a client's."""
    registries = (
        CoordinatorMetrics(Sessions(), tuple, tmp_path).registry,
        ClientMetrics("127.0.0.1:0", tmp_path).registry,
    )
    known = {
        sample.split()[2] + ("_total" if sample.endswith(" counter") and not sample.endswith("_total counter") else "")
        for registry in registries
        for sample in generate_latest(registry).decode().splitlines()
        if sample.startswith("# TYPE")
    }
    board = json.loads((MONITORING / "grafana-board.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += re.findall(r"expr: (.*)", (MONITORING / "alerts.yml").read_text())
    names = {name for text in asked for name in re.findall(r"\bkernfed_\w+", text)}
    assert len(names) > 15
    assert not {re.sub(r"_bucket$", "", name) for name in names} - known
