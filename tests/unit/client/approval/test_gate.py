"""The daemon's half: jobs wait, run or are refused as people decided, and a coordinator gains nothing by tricks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernfed.errors import ApprovalError, KernfedError, PolicyError, SiteRefusedError
from kernfed.jobs.job_file import parse_job
from kernfed.pki.submission import Signed
from kernfed.v1 import task_pb2
from kernfed_client.approval import gate
from kernfed_client.approval.book import Book, Decision, Entry, Word
from kernfed_client.approval.gate import Approvals, Approve, News
from kernfed_client.approval.plan_digest import digest_of
from kernfed_client.daemon.operators.submissions import SignedJob

TEXT = 'name = "demo"\n[method]\nname = "probe"\n'
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Site:
    """A book, the lines that the audit log got, and a clock."""

    def __init__(self, folder: Path, approve: Approve = "manual") -> None:
        self.book, self.approve = Book(folder), approve
        self.lines: list[tuple[str, str]] = []
        self.full = False
        self.now = NOON
        self.start()

    def start(self) -> None:
        self.approvals = Approvals(self.book, self.approve, self.record, lambda: self.now)

    def record(self, entry: Entry, said: Decision) -> None:
        if self.full:
            raise OSError("no space")
        self.lines.append((entry.job, said.word.value))

    def ask(self, number: int = 1, signed: str = "", *, answered: bool = False, operator: str = "ann") -> str:
        """Ask a task of a job; gives the reason of its refusal, or nothing."""
        job = Signed(operator, "1", "2", NOON, (signed or str(number)).encode())
        proven = None if signed == "nobody" else SignedJob(job, parse_job(TEXT), text=TEXT)
        task = task_pb2.Task(job_id=f"demo-{number}", submitted_by=operator, method="probe")
        try:
            self.approvals.admit(task, proven, answered=answered)
        except KernfedError as err:
            return err.reason
        return ""

    def say(self, word: Word, number: int = 1, why: str = "", *, remember: bool = False) -> None:
        [entry] = [entry for entry in self.book.entries() if entry.job == f"demo-{number}"]
        self.book.decide(entry, word, why, remember=remember)


WAITS, REFUSED, POLICY = ApprovalError.reason, SiteRefusedError.reason, PolicyError.reason


def test_a_job_waits_for_a_word_and_the_coordinator_is_told_of_it_once(tmp_path: Path) -> None:
    """Approval, pause and resumption act at once, over restarts; each has its line, and news where the job waited."""
    site = Site(tmp_path)
    assert (site.ask(), site.approvals.held("demo-1"), site.approvals.news()) == (WAITS, True, [])
    site.say(Word.APPROVE)
    assert site.approvals.news() == [News("demo-1", refused=False)]
    assert (site.approvals.news(), site.ask(), site.approvals.held("demo-1")) == ([], "", False)
    site.say(Word.PAUSE)
    assert (site.ask(answered=True), site.ask()) == ("", WAITS)
    site.start()
    assert site.ask() == WAITS
    site.say(Word.RESUME)
    assert site.approvals.news() == [News("demo-1", refused=False)]
    assert site.ask() == ""
    assert site.lines == [("demo-1", word) for word in ("approve", "pause", "resume")]


def test_a_refusal_holds_answers_back_that_are_computed(tmp_path: Path) -> None:
    """A refusal is told in its own words without signs that steer a terminal, and no reply leaves after it."""
    site = Site(tmp_path, "all")
    assert site.ask() == ""
    site.say(Word.REFUSE, why="no \x1b[2J vote")
    assert (site.ask(answered=True), site.ask()) == (REFUSED, REFUSED)
    assert site.approvals.news() == [News("demo-1", refused=True)]
    assert site.approvals.news() == []
    site.start()
    assert site.approvals.news() == [News("demo-1", refused=True)]  # answers of an earlier life go too
    task = task_pb2.Task(job_id="demo-1", submitted_by="ann", method="probe")
    with pytest.raises(SiteRefusedError, match="refused the job: no \ufffd\\[2J vote"):
        site.approvals.admit(task, SignedJob(Signed("ann", "1", "2", NOON, b"1"), parse_job(TEXT), text=TEXT))


def test_an_approval_is_of_what_was_signed(tmp_path: Path) -> None:
    """Another submission under an id that was approved is refused, before and after a restart."""
    site = Site(tmp_path)
    site.ask()
    site.say(Word.APPROVE)
    assert (site.ask(), site.ask(signed="other")) == ("", POLICY)
    site.start()
    assert (site.ask(signed="other"), site.ask()) == (POLICY, "")


def test_nothing_follows_from_a_word_that_the_log_does_not_have(tmp_path: Path) -> None:
    """While the audit log takes no line, an approval lets nothing through; it counts once the line is there."""
    site = Site(tmp_path)
    site.ask()
    site.say(Word.APPROVE)
    site.full = True
    for look in (site.ask, site.approvals.news):
        with pytest.raises(OSError, match="no space"):
            look()
    site.full = False
    assert (site.ask(), site.lines) == ("", [("demo-1", "approve")])


def test_a_damaged_decision_holds_the_job_up(tmp_path: Path) -> None:
    """A file that cannot be read may have been a refusal: the job waits, and no path leaves."""
    site = Site(tmp_path, "all")
    site.ask()
    site.say(Word.REFUSE)
    next((site.book.folder / "decided").iterdir()).write_text("{")
    task = task_pb2.Task(job_id="demo-1", submitted_by="ann", method="probe")
    for answered in (False, True):
        with pytest.raises(ApprovalError) as caught:
            site.approvals.admit(
                task, SignedJob(Signed("ann", "1", "2", NOON, b"1"), None, text=TEXT), answered=answered
            )
        assert str(tmp_path) not in caught.value.public
    assert site.approvals.withholds("demo-1")


@pytest.mark.parametrize("approve", ["all", "manual"])
def test_a_refusal_outlasts_a_signature_and_an_approval_does_not(tmp_path: Path, approve: Approve) -> None:
    """What holds an unsigned job up holds the signed one up, over a restart too; approval and later words are anew."""
    site = Site(tmp_path, approve)
    for number, words in ((1, [Word.REFUSE]), (2, [Word.PAUSE]), (3, [Word.APPROVE]), (4, [Word.REFUSE, Word.APPROVE])):
        site.ask(number, signed="nobody")
        for word in words:
            site.say(word, number)
    asks = WAITS if approve == "manual" else ""
    for _ in range(2):
        assert [site.ask(number) for number in (1, 2, 3, 4)] == [REFUSED, WAITS, asks, asks]
        site.start()
    site.say(Word.APPROVE, 1)
    site.say(Word.APPROVE, 2)
    site.say(Word.RESUME, 2)
    assert [site.ask(number) for number in (1, 2)] == ["", ""]
    assert site.lines[-3:] == [("demo-1", "approve"), ("demo-2", "approve"), ("demo-2", "resume")]


def test_an_approval_is_of_one_run(tmp_path: Path) -> None:
    """A job that is over and comes back asks anew, over restarts; a refusal and a plan that is known hold on."""
    site = Site(tmp_path)
    site.ask()
    site.say(Word.APPROVE)
    assert site.ask() == ""
    site.approvals.over("demo-1", "succeeded")
    assert (site.ask(), site.ask(answered=True)) == (WAITS, WAITS)
    site.start()
    assert site.ask() == WAITS
    site.say(Word.APPROVE)
    assert site.ask() == ""
    site.say(Word.REFUSE)
    site.approvals.over("demo-1", "failed")
    assert site.ask() == REFUSED
    site.say(Word.APPROVE, remember=True)
    assert site.ask() == ""
    site.approvals.over("demo-1", "succeeded")
    assert site.ask() == WAITS
    site.approve = "known"
    site.start()
    assert site.ask() == ""


def test_no_news_is_lost_where_the_log_takes_no_line(tmp_path: Path) -> None:
    """Of two jobs that wait, one whose word has no line holds the news of the other up, and both are told later."""
    site = Site(tmp_path)
    assert [site.ask(number) for number in (1, 2)] == [WAITS, WAITS]
    for number in (1, 2):
        site.say(Word.APPROVE, number)
    room = [1]

    def one_line(entry: Entry, said: Decision) -> None:
        if not room:
            raise OSError("no space")
        room.pop()

    site.approvals._record = one_line
    with pytest.raises(OSError, match="no space"):
        site.approvals.news()
    assert [site.approvals.withholds(f"demo-{number}") for number in (1, 2)] == [False, True]
    room.append(1)
    assert site.approvals.news() == [News("demo-1", refused=False), News("demo-2", refused=False)]


def test_a_known_plan_runs_at_once(tmp_path: Path) -> None:
    """A job whose plan was approved for good asks nobody, and the log says by what it runs; manual goes by no plan."""
    site = Site(tmp_path, "known")
    site.ask()
    site.say(Word.APPROVE, remember=True)
    assert (site.ask(), site.ask(2), site.ask(3, operator="eve")) == ("", "", WAITS)
    assert site.lines == [("demo-1", "approve"), ("demo-2", "approve")]
    site.approve = "manual"
    site.start()
    assert (site.ask(), site.ask(2), site.ask(4)) == ("", WAITS, WAITS)


@pytest.mark.parametrize("approve", ["manual", "all"])
def test_a_flood_of_jobs_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve) -> None:
    """Of one operator so many ask and no more, others ask beside them, and a full book lets go of those that ended."""
    monkeypatch.setattr(gate, "MAX_ASKING", 3)
    monkeypatch.setattr(gate, "MAX_JOBS", 6)
    site = Site(tmp_path, approve)
    first = [site.ask(n, operator="eve") for n in range(5)]
    assert first == ([WAITS] * 3 + [POLICY] * 2 if approve == "manual" else [""] * 5)
    assert site.ask(10) == (WAITS if approve == "manual" else "")
    if approve == "all":
        assert site.ask(11) == POLICY
        site.approvals.over("demo-0", "the job is over")
        assert site.ask(11) == ""
    else:
        site.now += timedelta(days=8)  # who never heard of their end asks again, or is forgotten
        assert [site.ask(n, operator="eve") for n in (20, 21, 22, 23)] == [WAITS] * 3 + [POLICY]
    assert len(site.book.entries()) <= 6


def test_jobs_begin_and_end_in_the_book(tmp_path: Path) -> None:
    """A job is noted when it asks, begins and ends, and one that comes back is not over."""
    site = Site(tmp_path, "all")

    def noted() -> Entry:
        [entry] = site.book.entries()
        return entry

    site.ask()
    assert (noted().began, noted().over, noted().operator) == (NOON.isoformat(), "", "ann")
    site.approvals.over("demo-1", "done \x07")
    site.approvals.over("demo-2", "nobody knows it")
    assert (noted().over, noted().why_over) == (NOON.isoformat(), "done \ufffd")
    site.now += timedelta(minutes=5)
    site.ask()
    assert (noted().over, noted().last) == ("", site.now.isoformat())


def test_the_digest_of_a_plan_goes_by_what_decides_what_leaves() -> None:
    """Name, comments, `report` and defaults that are written down change nothing; seed, ridge and operator do."""
    begin = 'name = "demo"\n{}[method]\nname = "dkrr"\n{}[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["a"]\n'

    def of(top: str = "", method: str = "", operator: str = "ann", change: Callable[[str], str] = str) -> str:
        return digest_of(parse_job(change(begin.format(top, method))), operator)

    same = [of(), of("report = false\n# hello\n"), of("seed = 0\n"), of(change=lambda t: t.replace("demo", "weekly"))]
    assert len(set(same)) == 1
    others = [
        of("seed = 1\n"),
        of(method="ridge = 0.5\n"),
        of(operator="eve"),
        of(change=lambda t: t + "[cohort]\nmin_clients = 2\n"),
    ]
    assert len({same[0], *others}) == 5
    assert replace(Entry(*"abcdefghi"), plan=same[0]).plan == same[0]
