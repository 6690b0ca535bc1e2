"""What a client makes of the submissions that a coordinator passes on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernfed.errors import SubmissionError
from kernfed.jobs.info import ClientInfo
from kernfed.pki.identity import Identity, Role
from kernfed.pki.revocation_list import sign_list
from kernfed.pki.submission import sha256_of, sign_job, signed_job_id
from kernfed.v1 import task_pb2
from kernfed_client.daemon.operators.submissions import MAX_JOBS, Submissions
from kernfed_server.federation.session import Session, ToldSubmission
from kernfed_testing.identities import make_identities

TEXT = 'name = "demo"\n[method]\nname = "probe"\n'


class World:
    """A client of a federation, and its operator `ann`."""

    def __init__(self, root: Path) -> None:
        self.ids = make_identities(root)
        self.ann = Identity.load(self.ids.operator)
        self.now = datetime.now(UTC)  # after the certificates were made, however long that took
        self.client = Submissions(Identity.load(self.ids.make(Role.CLIENT, "site")), lambda: self.now)

    def sign(self, text: str = TEXT, name: str = "demo") -> task_pb2.JobSubmission:
        """A job's submission as an honest coordinator passes it on."""
        signed = sign_job(text, self.ann, self.now)
        job_id = signed_job_id(name, sha256_of(signed))
        return task_pb2.JobSubmission(job_id=job_id, job_toml=text, submission=signed)


def task_of(told: task_pb2.JobSubmission, **fields: str) -> task_pb2.Task:
    """A task of a signed job, with some fields otherwise."""
    said = {"job_id": told.job_id, "submitted_by": "ann", "method": "probe", **fields}
    return task_pb2.Task(submission_sha256=sha256_of(told.submission), **said)  # type: ignore[arg-type]  # texts alone


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_signed_job(world: World) -> None:
    """A task of a job whose submission came before is of the operator and the file that were signed."""
    told = world.sign()
    world.client.told(told)
    job = world.client.proven(task_of(told))
    assert job is not None
    assert job.file is not None
    assert (job.signed.operator, job.file.method.name) == ("ann", "probe")
    assert world.client.known(told.job_id) == job
    world.client.forget(told.job_id)
    assert world.client.known(told.job_id) is None


def test_a_job_that_is_not_signed(world: World) -> None:
    """Nothing says that it is signed, so nothing is proven; the policy decides on such jobs."""
    assert world.client.proven(task_pb2.Task(job_id="demo-aaaaaa", submitted_by="ann")) is None


def test_a_revoked_operator(world: World) -> None:
    """What it signed is refused, also a job that was proven before; another operator's is not."""
    told = world.sign()
    world.client.told(told)
    world.client.proven(task_of(told))
    world.client.revoked.told(sign_list(world.ids.pki.authority, {world.ann.serial: world.now}, 1, world.now))
    with pytest.raises(SubmissionError, match="by which operator ann signed the job was revoked on"):
        world.client.proven(task_of(told))
    world.ann = Identity.load(world.ids.make(Role.OPERATOR, "bob"))
    other = world.sign()
    world.client.told(other)
    assert world.client.proven(task_of(other, submitted_by="bob")) is not None


def test_one_submission_is_one_job(world: World) -> None:
    """What was signed for one job cannot be run as a second one, by whatever name."""
    told = world.sign()
    for job_id in ("demo-aaaaaaaa", f"other-{told.job_id.rpartition('-')[2]}", "demo"):
        again = task_pb2.JobSubmission(job_id=job_id, job_toml=told.job_toml, submission=told.submission)
        world.client.told(again)
        with pytest.raises(SubmissionError, match="one submission cannot be run as another job"):
            world.client.proven(task_of(again))


def test_a_job_that_was_signed_late(world: World) -> None:
    """What names a job that lay at the coordinator is good for that job, and for no other."""
    signed = sign_job(TEXT, world.ann, world.now, "demo-oldold")
    told = task_pb2.JobSubmission(job_id="demo-oldold", job_toml=TEXT, submission=signed)
    world.client.told(told)
    job = world.client.proven(task_of(told))
    assert job is not None
    assert job.signed.job_id == "demo-oldold"
    for job_id in ("demo-oldolx", signed_job_id("demo", sha256_of(signed))):
        again = task_pb2.JobSubmission(job_id=job_id, job_toml=TEXT, submission=signed)
        world.client.told(again)
        with pytest.raises(SubmissionError, match="one submission cannot be run as another job"):
            world.client.proven(task_of(again))


def test_the_coordinator_may_not_say_otherwise(world: World) -> None:
    """Operator and method are what was signed; a task without a submission, or of another, is refused."""
    told, other = world.sign(), world.sign()
    with pytest.raises(SubmissionError, match="did not pass on"):
        world.client.proven(task_of(told))
    world.client.told(told)
    with pytest.raises(SubmissionError, match="is of operator 'alice', and ann signed it"):
        world.client.proven(task_of(told, submitted_by="alice"))
    with pytest.raises(SubmissionError, match="runs method 'dkrr', and its operator signed 'probe'"):
        world.client.proven(task_of(told, method="dkrr"))
    task = task_of(told)
    for digest in (b"", sha256_of(other.submission)):
        task.submission_sha256 = digest
        with pytest.raises(SubmissionError, match="not of the submission"):
            world.client.proven(task)


def test_another_text_after_the_proof(world: World) -> None:
    """A text that is passed on anew, after the job was proven, is judged anew."""
    told = world.sign()
    world.client.told(told)
    world.client.proven(task_of(told))
    changed = task_pb2.JobSubmission(job_id=told.job_id, job_toml=told.job_toml + "#", submission=told.submission)
    world.client.told(changed)
    with pytest.raises(SubmissionError, match="not the one that operator/ann signed"):
        world.client.proven(task_of(told))


def test_a_file_of_another_release(world: World) -> None:
    """What cannot be read here is signed all the same; the policy learns why it cannot be read."""
    told = world.sign(TEXT + "[cohort]\nfrom_the_future = true\n")
    world.client.told(told)
    job = world.client.proven(task_of(told))
    assert job is not None
    assert job.file is None
    assert "from_the_future" in job.unread


@pytest.mark.slow
def test_a_coordinator_cannot_fill_the_memory(world: World) -> None:
    """Submissions of many jobs, or of large texts, push out those before."""
    for number in range(MAX_JOBS + 10):
        world.client.told(task_pb2.JobSubmission(job_id=f"demo-{number}"))
    assert world.client.num_bytes < 64 * MAX_JOBS
    for number in range(50):
        world.client.told(task_pb2.JobSubmission(job_id=f"large-{number}", job_toml="#" * (1 << 20)))
    assert world.client.num_bytes <= 40 << 20


def _kept(client: Submissions, job: task_pb2.JobSubmission) -> bool:
    """Whether a client still has it: what is missing is told apart from what does not hold."""
    with pytest.raises(SubmissionError) as refused:
        client.proven(task_pb2.Task(job_id=job.job_id, submission_sha256=b"x"))
    return "did not pass on" not in str(refused.value)


def test_what_the_coordinator_takes_to_be_here_is_here(world: World) -> None:
    """With 400 jobs in turn, the client has each task's submission, though both let some go; those in use are not."""
    session = Session(ClientInfo("site"), "1", "aa", {})
    jobs = [task_pb2.JobSubmission(job_id=f"demo-{number}", job_toml="#" * 1000) for number in range(400)]
    times = 0
    for turn in range(3):
        for number, told in enumerate(jobs):
            for job in (told, jobs[0]):  # the first one has tasks all the time
                known = job.job_id in session.told
                session.tell_submission(ToldSubmission(job.job_id, b"", job.SerializeToString()))
                if not known:
                    world.client.told(job)
                    times += 1
                world.client.used(job.job_id)
                assert _kept(world.client, job), (turn, number)
    assert times == 1 + 3 * 399
