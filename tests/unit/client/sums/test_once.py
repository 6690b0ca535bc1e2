"""A site helps to unmask a sum for one set of terms, over its lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.errors import PolicyError
from kernfed_client.sums import once
from kernfed_client.sums.once import ONCE, Once


def test_the_first_set_counts(tmp_path: Path) -> None:
    """The same again passes, in a later life too; another one is refused, and other sums and jobs are their own."""
    Once(tmp_path / "state").keep("job", b"what", b"set")
    again = Once(tmp_path / "state")
    again.keep("job", b"what", b"set")
    again.keep("job", b"other", b"another set")
    again.keep("other", b"what", b"another set")
    with pytest.raises(PolicyError, match="over other clients, or with other weights, before"):
        again.keep("job", b"what", b"another set")
    assert (tmp_path / "state" / ONCE).stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_helps_with_nothing(tmp_path: Path) -> None:
    """It is not known then what was told; the path stays at the site."""
    (tmp_path / ONCE).write_bytes(b"no database" * 1000)
    with pytest.raises(PolicyError, match="is damaged, so it is not known") as refused:
        Once(tmp_path).keep("job", b"what", b"set")
    assert str(tmp_path) not in refused.value.public


def test_a_full_file_takes_no_new_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an end, forgets nothing, and goes on with the sums that it has."""
    monkeypatch.setattr(once, "MOST_BYTES", 40_000)
    kept = Once(tmp_path)
    kept.keep("job-0", b"what" * 8, b"set" * 8)
    number = 0
    while (tmp_path / ONCE).stat().st_size < 40_000:
        number += 1
        kept.keep(f"job-{number}", b"what" * 8, b"set" * 8)
    assert number > 100
    with pytest.raises(PolicyError, match="move it away if you accept") as refused:
        kept.keep("one more", b"what" * 8, b"set" * 8)
    assert (tmp_path / ONCE).stat().st_size <= 40_000 + 4096
    assert str(tmp_path) not in refused.value.public
    kept.keep("job-0", b"what" * 8, b"set" * 8)
    with pytest.raises(PolicyError, match="over other clients"):
        kept.keep("job-0", b"what" * 8, b"others" * 4)


def test_a_disk_that_takes_nothing_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """A file in the place of the folder is no refusal."""
    (tmp_path / "state").write_text("")
    with pytest.raises(OSError, match="state"):
        Once(tmp_path / "state").keep("job", b"what", b"set")
