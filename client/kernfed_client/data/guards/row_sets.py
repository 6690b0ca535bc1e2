"""Which rows earlier jobs used: a job whose rows differ from those by a few would tell about these few.

The client remembers, for each data set, the rows that each job trained and was measured on: as their places in the
file, as digests of their content and as marks of their lines. Places tell apart the rows of jobs on any columns, as
long as the file stays the same; digests those of jobs on the same columns, whatever became of the file; marks those of
jobs on any columns of two files that share lines. A job chooses which data set it takes, so the rows of one that has
another name are compared by all three.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import numpy as np
import structlog

from kernfed.arrays import Array
from kernfed.errors import PolicyError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, PartitionFile
from kernfed_client.data.guards.kept_sets import keep_set, kept_sets
from kernfed_client.data.guards.row_marks import marks_of_file
from kernfed_client.data.guards.row_spans import tells_of_few
from kernfed_client.data.guards.split import digest_words
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import LocalData

log = structlog.get_logger(__name__)

_ALL_WAYS = ("places", "content", "marks")
"""In which rows are known."""
_SAME_SHARE, _MOVED_SHARE = 0.8, 0.5


def refuse_near_sets(
    file: ClientFile, dataset: str, schema: DataSchema, data: LocalData, *, refused: bool = False
) -> bool:
    """Refuse rows that, with those of earlier jobs, would tell about fewer than `policy.min_rows`; else remember them.

    Where the file changed since, its site chose the rows: what to do then is `policy.near_jobs`.

    Args:
        file: The client file.
        dataset: Name of the data set.
        schema: Of the job.
        data: Its rows.
        refused: Whether the job is refused for another reason, or there is none yet: then none counts for others.

    Returns:
        Whether other rows are held out than in the last job on the same columns, though most of its rows are the same.
        Only of a split that the file decides: a draw by another seed holds out others.

    Raises:
        PolicyError: Names the remedies.
    """
    least = file.policy.min_rows
    section = file.datasets.get(dataset)
    if least == 1 or file.policy.near_jobs == "allow" or section is None or data.train.num_rows < least:
        return False  # the policy refuses so few rows: such a job is told nothing
    folder = _folder(file, dataset)
    found = {
        **_set("train", data.train, schema, section.train),
        **_set("test", data.test, schema, section.test or section.train),
    }
    before: dict[str, list[Array]] = {}
    known = {_way(key) for key in found}
    dealt_anew, by_file = False, schema.by_record and section.test is None
    others = [_folder(file, name) for name in sorted(file.datasets) if name != dataset]
    for its, earlier in ((place, kept) for place in (*others, folder) for kept in kept_sets(place)):
        ways: tuple[str, ...] = _ALL_WAYS
        if its == folder:
            ways = _ALL_WAYS if file.policy.near_jobs == "wait-for-rows" else ("places",)
            dealt_anew = by_file and _dealt_anew(found, earlier, dealt_anew)
        for key in sorted(earlier):  # trained on by one and tested on by another: such rows are the same as well
            if key.split("-")[1] in ways and _way(key) in known:
                before.setdefault(_way(key), []).append(earlier[key])
        for key in sorted(found.keys() & earlier.keys(), key=lambda key: (key.split("-")[1] not in ways, key)):
            if not 0 < _difference(found[key], earlier[key]) < least:
                continue
            if key.split("-")[1] in ways:
                if "-places-" in key:
                    differ = np.setxor1d(found[key], earlier[key]).tolist()
                    log.warning("a job's rows differ from an earlier job's by these of the file", rows=differ)
                raise PolicyError(
                    f"data set {dataset}: the rows of this job differ from those of an earlier job in fewer than "
                    "policy.min_rows, so the two would tell about these; use the data set, target, features, ranges, "
                    "rule for gaps and test fraction of the earlier job (another target may leave out rows of other "
                    "classes, where they are few), or, where rows were added or corrected, wait for more, "
                    'or let this client\'s administrator set policy.near_jobs = "allow"'
                )
            log.warning(
                "the data changed since an earlier job in fewer rows than policy.min_rows, so the two jobs tell about "
                'these; policy.near_jobs = "wait-for-rows" would refuse this one',
                dataset=dataset,
            )
            break  # the ways that count came first
    if any(_adds_up(found, sets, way, least) for way, sets in sorted(before.items())):
        raise PolicyError(
            f"data set {dataset}: the rows that this job and earlier jobs train and are measured on add up, some added "
            "and some subtracted, to fewer than policy.min_rows, so the jobs together would tell about these; use the "
            "target, features, ranges, rule for gaps and test fraction of an earlier job, or let this client's "
            'administrator set policy.near_jobs = "allow"'
        )
    if not refused:
        keep_set(folder, found)
    return dealt_anew


def _folder(file: ClientFile, dataset: str) -> Path:
    """Where the sets of a data set are kept."""
    return file.state / "row-sets" / hashlib.sha256(dataset.encode()).hexdigest()[:32]


def _way(key: str) -> str:
    """What is left of a key without the part: rows under keys of one way can be compared."""
    return key.partition("-")[2]


def _adds_up(found: dict[str, Array], before: list[Array], way: str, least: int) -> bool:
    """Whether rows to train on and rows to test on, of this job and of earlier ones, add up to a few.

    Errors of some models over the test rows tell sums over their columns, as a job does that trains on them.
    """
    own = [found[key] for key in sorted(found) if _way(key) == way]
    return any(tells_of_few(rows, [*before, *own[:place]], least) for place, rows in enumerate(own))


def _dealt_anew(found: dict[str, Array], earlier: dict[str, Array], otherwise: bool) -> bool:
    """Whether two jobs on the same columns hold out other rows, of rows that are mostly the same."""
    keys = sorted(key for key in found.keys() & earlier.keys() if "-content-" in key)
    if len(keys) < 2:
        return otherwise
    (test, train), (test_before, train_before) = ([known[key] for key in keys] for known in (found, earlier))
    shared = len(np.intersect1d(np.concatenate([test, train]), np.concatenate([test_before, train_before])))
    moved = len(np.intersect1d(test, train_before)), len(np.intersect1d(test_before, train))
    same = shared >= _SAME_SHARE * max(len(test) + len(train), len(test_before) + len(train_before))
    return same and moved[0] > _MOVED_SHARE * len(test) > 0 and moved[1] > _MOVED_SHARE * len(test_before) > 0


def _set(part: str, rows: PartitionData, schema: DataSchema, file: PartitionFile) -> dict[str, Array]:
    """Rows of a part by the two ways in which they are known, under keys that equal where they can be compared."""
    columns = hashlib.sha256(repr((sorted(schema.features), schema.target, schema.backbone)).encode()).hexdigest()
    with contextlib.suppress(OSError):
        return {
            f"{part}-places-{_content(file.path)}": np.sort(rows.row_numbers).astype(np.int64),
            f"{part}-content-{columns}": np.sort(digest_words(rows, schema.features)),
            f"{part}-marks": np.sort(np.array(marks_of_file(file, rows.row_numbers), dtype=np.int64)),
        }
    return {}


def _content(path: Path) -> str:
    """What tells a file, or a folder of files, from what it was: a file that is written anew as it was is the same."""
    if path.is_file():
        with path.open("rb") as data:
            return hashlib.file_digest(data, "sha256").hexdigest()
    about = path.stat()
    return hashlib.sha256(repr((str(path), about.st_size, about.st_mtime_ns)).encode()).hexdigest()


def _difference(these: Array, those: Array) -> int:
    """Rows that only one of two sets has; a row that comes several times counts so often."""
    _, place = np.unique(np.concatenate([these, those]), return_inverse=True)
    size = int(place.max(initial=-1)) + 1
    here, there = (np.bincount(p, minlength=size) for p in np.split(place, [len(these)]))
    return int(np.abs(here - there).sum())
