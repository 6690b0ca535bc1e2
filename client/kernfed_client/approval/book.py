"""The site's book of jobs, below `approval` in the state folder: what ran, runs or asks to, and what people decided.

The daemon alone writes `jobs`, and people's commands alone write `decided` and `known`, so neither waits for the other,
and a decision lies on the disk whether or not the daemon runs.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import hashlib
import json
import os
import pwd
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernfed import files
from kernfed.errors import ConfigError, UnknownJobError
from kernfed.wording import clean, listed

FOLDER = "approval"
"""Its name in the state folder."""
MAX_WHY = 200
"""Characters of a reason that a person gives."""
MAX_DECISIONS = 100
"""Kept of a job; the oldest go first."""
_LOCK = ".deciding"


class State(enum.StrEnum):
    """What becomes of a job here."""

    ASKS = "asks"
    """Nothing of it is answered until somebody here approves it."""
    RUNS = "runs"
    PAUSED = "paused"
    REFUSED = "refused"
    OVER = "over"


class Word(enum.StrEnum):
    """What a person says of a job."""

    APPROVE = "approve"
    REFUSE = "refuse"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Decision:
    """One word of a person."""

    number: int
    """From 1, in the order in which they were said of the job."""
    word: Word
    why: str
    user: str
    when: str
    """ISO 8601, in UTC."""
    remember: bool = False
    """Whether jobs of this plan run at once from now on, where the policy says "known"."""


@dataclass(frozen=True, slots=True)
class Decided:
    """All that was said of a job, or of a job of the same id that its operator signed otherwise."""

    submission: str = ""
    """Digest of what was signed, which the words are about."""
    words: tuple[Decision, ...] = ()

    def of(self, submission: str) -> Decided:
        """What counts for a job of this id whose submission has the digest `submission`.

        All of it, where it was said of this submission. Of what was said while nobody had signed the job, that which
        holds it up: whoever refuses a job does not want it signed either, and an approval was not of what is signed.
        """
        if self.submission == submission:
            return self
        verdict = self.last(Word.APPROVE, Word.REFUSE)
        held = [verdict] if verdict is not None and verdict.word is Word.REFUSE else []
        held += [said for said in [self.last(Word.PAUSE, Word.RESUME)] if said is not None and said.word is Word.PAUSE]
        words = () if self.submission else tuple(sorted(held, key=lambda said: said.number))
        return Decided(submission, words)

    def last(self, *words: Word) -> Decision | None:
        """The last of some words; None: none was said."""
        return next((said for said in reversed(self.words) if said.word in words), None)


@dataclass(frozen=True, slots=True)
class Entry:
    """A job, as the daemon notes it."""

    job: str
    name: str
    method: str
    operator: str
    submission: str
    """Digest of what its operator signed; empty: nothing, so name, method and operator are the coordinator's word."""
    plan: str
    """Digest of what decides what leaves; empty where the job is not signed."""
    job_toml: str
    since: str
    """When it asked first, ISO 8601 in UTC."""
    last: str
    """When it asked last, to the minute or so."""
    asks: bool = False
    """Whether the policy wants somebody's word on it."""
    began: str = ""
    """When it was first let through."""
    over: str = ""
    """When the coordinator ended it."""
    why_over: str = ""
    told: int = 0
    """Number of the last decision that has its line in the audit log."""
    ended: int = 0
    """Number of the last decision on a run of the job that is over. An approval among them is of that run alone."""

    def approval(self, decided: Decided) -> Decision | None:
        """The word that lets this run of the job through, unless it was refused later; None: nobody said it."""
        said = decided.last(Word.APPROVE)
        return said if said is not None and said.number > self.ended else None

    def state(self, decided: Decided, *, known: bool) -> State:
        """What becomes of it.

        Args:
            decided: What was said of it.
            known: Whether its plan was approved for good, and the policy goes by that.
        """
        verdict, held = decided.last(Word.APPROVE, Word.REFUSE), decided.last(Word.PAUSE, Word.RESUME)
        if verdict is not None and verdict.word is Word.REFUSE:
            return State.REFUSED
        if self.over:
            return State.OVER
        if self.asks and self.approval(decided) is None and not known:
            return State.ASKS
        return State.PAUSED if held is not None and held.word is Word.PAUSE else State.RUNS


class Book:
    """The files."""

    def __init__(self, state: Path) -> None:
        """Open that of a state folder; nothing is written yet."""
        self.folder = state / FOLDER
        self._jobs, self._decided, self._known = (self.folder / part for part in ("jobs", "decided", "known"))

    def entries(self) -> list[Entry]:
        """All jobs, those that asked first ahead; files that cannot be read are passed over.

        Raises:
            ConfigError: The folder is not this user's.
        """
        try:
            names = sorted(os.listdir(self._jobs))
        except FileNotFoundError:
            return []
        except PermissionError as err:
            raise _not_ours(self.folder) from err
        paths = [self._jobs / name for name in names if name.endswith(".json") and not files.is_part(self._jobs / name)]
        found = [entry for path in paths if (entry := _entry(path)) is not None]
        return sorted(found, key=lambda entry: (entry.since, entry.job))

    def note(self, entry: Entry) -> int:
        """Write a job down; gives the bytes of it.

        Raises:
            OSError: The disk takes nothing.
        """
        self._jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = json.dumps(asdict(entry)).encode()
        files.replace(self._path(self._jobs, entry.job), data, durable=False, mode=0o600)
        return len(data)

    def forget(self, job_id: str) -> None:
        """Remove a job, and what was said of it."""
        for folder in (self._jobs, self._decided):
            self._path(folder, job_id).unlink(missing_ok=True)

    def mark(self, job_id: str) -> tuple[int, ...]:
        """Changes with each word on a job."""
        try:
            found = self._path(self._decided, job_id).stat()
        except FileNotFoundError:
            return ()
        return found.st_mtime_ns, found.st_ino, found.st_size

    def decided(self, job_id: str) -> Decided:
        """What was said of a job."""
        try:
            found = json.loads(self._path(self._decided, job_id).read_text())
            words = tuple(Decision(**{**said, "word": Word(said["word"])}) for said in found["words"])
            return Decided(str(found["submission"]), words)
        except FileNotFoundError:
            return Decided()
        except PermissionError as err:
            raise _not_ours(self.folder) from err
        except (ValueError, TypeError, KeyError) as err:
            raise ConfigError(
                f"{self._path(self._decided, job_id)} cannot be read; remove it, and say again what becomes of {job_id}"
            ) from err

    def knows(self, plan: str) -> bool:
        """Whether jobs of a plan were approved for good."""
        return bool(plan) and (self._known / f"{plan}.json").exists()

    def decide(self, entry: Entry, word: Word, why: str, *, remember: bool = False) -> Decision:
        """Say a word on a job, for whoever runs this process.

        Args:
            entry: The job, as the person saw it.
            word: What becomes of it.
            why: For the audit log, and where the job is refused for its operator.
            remember: With `APPROVE`: jobs of the same plan run at once from now on. With `REFUSE` it is forgotten.

        Raises:
            ConfigError: The folder is not this user's, or the disk takes nothing.
        """
        try:
            with self._deciding():
                before = self.decided(entry.job).of(entry.submission)
                number = before.words[-1].number + 1 if before.words else 1
                when = datetime.now(UTC).isoformat(timespec="seconds")
                said = Decision(number, word, why, user_name(), when, remember)
                after = replace(before, words=(*before.words, said)[-MAX_DECISIONS:])
                self._decided.mkdir(exist_ok=True, mode=0o700)
                known = self._known / f"{entry.plan}.json"
                if word is Word.REFUSE and entry.plan:
                    known.unlink(missing_ok=True)
                _write(self._path(self._decided, entry.job), asdict(after))
                if remember:
                    self._known.mkdir(exist_ok=True, mode=0o700)
                    _write(known, {"job": entry.job, "user": said.user, "when": when})
                return said
        except OSError as err:
            raise _not_ours(self.folder, err.strerror or str(err)) from err

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[None]:
        """One person at a time."""
        with (self.folder / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, folder: Path, job_id: str) -> Path:
        """By the id's digest, for the id comes from a peer."""
        return folder / f"{hashlib.sha256(job_id.encode()).hexdigest()[:32]}.json"


def find(entries: list[Entry], job: str) -> Entry:
    """The job that a person means: by its id, the beginning of it, or its name.

    A name stands for the one job of that name that is not over, and otherwise for the newest.

    Raises:
        UnknownJobError: None, or several.
    """
    exact = [entry for entry in entries if entry.job == job]
    of_name = [entry for entry in entries if entry.name == job]
    live = [entry for entry in of_name if not entry.over]
    named = live or of_name[-1:]
    begun = [entry for entry in entries if entry.job.startswith(job)]
    found = exact or named or begun
    if not found:
        raise UnknownJobError(f"no job {clean(job)!r} asked this client for anything; `kernfed-client jobs` lists all")
    if len(found) > 1:
        names = clean(listed([entry.job for entry in found], 5, more=", ..."))
        raise UnknownJobError(f"{clean(job)!r} may be any of {names}; give more letters")
    return found[0]


def user_name() -> str:
    """Who runs this process, by the system's account of it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _write(path: Path, found: dict[str, Any]) -> None:
    files.replace(path, json.dumps(found).encode(), durable=True, mode=0o600)


def _entry(path: Path) -> Entry | None:
    try:
        return Entry(**json.loads(path.read_text()))
    except PermissionError as err:
        raise _not_ours(path.parent.parent) from err
    except (OSError, ValueError, TypeError):
        return None


def _not_ours(folder: Path, why: str = "permission denied") -> ConfigError:
    return ConfigError(f"{folder}: {why}; run this command as the user of the daemon, on a disk with space")
