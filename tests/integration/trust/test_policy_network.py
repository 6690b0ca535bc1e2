"""What a client refuses to coordinators and operators over the network, and what its audit log tells of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed_client.daemon.audit_chain import verify
from kernfed_client.daemon.audit_report import audit
from kernfed_server.federation.exchange import RemoteExchange
from kernfed_server.federation.sessions import SessionRegistry
from kernfed_testing.federation import Federation


@pytest.mark.redteam
async def test_a_method_is_bound_to_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of another method are refused though the stated method is allowed; the refusal stays in the audit log."""

    def lying(registry: SessionRegistry, operator: str, *_: object) -> RemoteExchange:
        return RemoteExchange(registry, operator, "dkrr")

    monkeypatch.setattr("kernfed_server.app.RemoteExchange", lying)
    settings = {"a": '[policy]\nmethods = ["dkrr"]\nunsigned = "allow"'}
    async with Federation(tmp_path, ["a", "b"], settings=settings) as fed:
        refused = await fed.run(fed.job("fedavg", rounds=1, local_steps=1, batch_size=20))
        honest = await fed.run(fed.job("dkrr"))
        folder = fed.client_folder("a")
    assert refused.info.state is JobState.FAILED
    failed = refused.of(EventKind.CLIENT_FAILED)
    assert {(e.client, e.reason) for e in failed} == {("a", "REFUSED_BY_POLICY"), ("b", "REFUSED_BY_POLICY")}
    assert "a job of method 'dkrr' may not ask the step fedavg." in failed[0].message
    assert honest.info.state is JobState.SUCCEEDED

    log = folder / "state" / "audit.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert verify(log) == len(lines)
    no = [line for line in lines if line.get("kind") == "refused"]
    assert {line["job"] for line in no} == {refused.info.job_id}
    assert {line["reason"] for line in no} == {"REFUSED_BY_POLICY"}
    [solved] = [line for line in lines if line["step"] == "ridge.local_solve"]
    assert solved["request"]["ridge"] > 0
    assert len(solved["request_sha256"]) == 64
    report = {job.job: job for job in audit(folder / "client.toml").jobs}
    assert report[refused.info.job_id].refused == len(no)
    assert report[honest.info.job_id].refused == 0


@pytest.mark.redteam
async def test_no_job_tells_about_fewer_rows_than_the_policy_says(tmp_path: Path) -> None:
    """Batches of one row are refused; a job that would hold one row out has the model of one that holds none out."""
    settings = {"a": "[policy]\nmin_rows = 40"}
    async with Federation(tmp_path, ["a"], settings=settings) as fed:
        refused = await fed.run(fed.job("fedavg", rounds=1, local_steps=1, batch_size=1))
        none_out = await fed.run(fed.job("dkrr", data_test_fraction=0.0))
        one_out = await fed.run(fed.job("dkrr", data_test_fraction=1 / 60))
        digests = {await fed.model_sha256(none_out), await fed.model_sha256(one_out)}
    assert "asks for batches of 1 rows" in refused.of(EventKind.CLIENT_FAILED)[0].message
    assert len(digests) == 1
    assert any("a: fewer test rows than policy.min_rows" in e.message for e in one_out.of(EventKind.NOTE))


@pytest.mark.redteam
async def test_a_small_cohort_is_refused(tmp_path: Path) -> None:
    """A client that asks for three clients takes part with three of them, and in no job of its own or of two."""
    settings = {"a": "[policy]\nmin_cohort = 3"}
    async with Federation(tmp_path, ["a", "b", "c"], settings=settings) as fed:
        alone = await fed.run(fed.job("dkrr", ["a"]))
        two = await fed.run(fed.job("dkrr", ["a", "b"]))
        three = await fed.run(fed.job("dkrr"))
    for refused in (alone, two):
        assert refused.info.state is JobState.FAILED
        assert "a: REFUSED_BY_POLICY: this client takes part in no job of fewer than 3" in refused.info.error_message
    assert three.info.state is JobState.SUCCEEDED


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_a_client_that_lets_no_gradient_out_takes_part_in_rounds(tmp_path: Path, share: float) -> None:
    """With its quorum or without: the job leaves its model at once and says why it does not know how far that is."""
    settings = {"b": '[policy]\nallow = ["summary", "mean_embedding", "model_update", "metric"]\nunsigned = "allow"'}
    async with Federation(tmp_path, ["a", "b", "c"], settings=settings) as fed:
        done = await fed.run(fed.job("fedavg", rounds=2, local_steps=1, cohort_min_fraction=share))
    assert done.info.state is JobState.SUCCEEDED, done.info.error_message
    [note] = [e.message for e in done.of(EventKind.NOTE) if e.message.startswith("nobody can say how far")]
    assert "b" in note
    [end] = [e.message for e in done.of(EventKind.NOTE) if e.message.startswith("end: ")]
    assert "the last round moved the weights by" in end
    assert "pooled gradient" not in end
