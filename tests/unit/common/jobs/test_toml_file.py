"""`kernfed.jobs.toml_file`: errors that name file, key and remedy."""

import re
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.jobs.job_file import load_job, parse_job

JOB = """name = "a"
[method]
name = "newton"
{method}
[cohort]
{cohort}
[data]
task = "regression"
target = "y"
features = ["x"]
"""


@pytest.mark.parametrize(
    ("method", "cohort", "words"),
    [
        ("ruonds = 3", "", ["job.toml: method.ruonds: unknown key", "did you mean 'rounds'"]),
        ("evaluate_every = 3", "", ["method.evaluate_every", "belongs in the top of the file"]),
        ("", "rounds = 3", ["cohort.rounds", "belongs in [method]"]),
        ('begin = "dkrr"', "", ["method.begin: newton has no such key; it is one of fedavg, fedprox; remove it"]),
        ("begn = 1", "", ["method.begn: unknown key; remove it"]),
        ("zzqqxx = 3", "", ["zzqqxx: unknown key; remove it"]),
        ('rounds = "many"', "", ["method.rounds", "integer", "'many'"]),
        ("ridge = -1", "", ["method.ridge", "greater than 0", "-1"]),
        ("", "min_clients = 3\nclients = ['a']", ["cohort", "min_clients 3 exceeds the 1 clients named"]),
    ],
)
def test_a_faulty_key_is_named_with_its_remedy(method: str, cohort: str, words: list[str]) -> None:
    """Each problem is one line that says where and what to do."""
    with pytest.raises(ConfigError) as caught:
        parse_job(JOB.format(method=method, cohort=cohort), "job.toml")
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"a = 1\n{'a.' * 20_000}a = 1", r"line 2: a key of more than 16 parts"),
        (f"[{'a.' * 20_000}a]", r"line 1: a key of more than 16 parts"),
        ("x = { " + '"a" . ' * 20_000 + "a = 1 }", r"line 1: a key of more than 16 parts"),
        (f"x = {'[' * 50_000}", r"too deep in each other"),
        ("\n".join(f"k{i} = 1" for i in range(5000)), r"and \d+ more problems"),
    ],
    ids=["key", "table", "inline", "deep", "many"],
)
@pytest.mark.redteam
def test_a_file_made_to_be_slow_is_refused_at_once(text: str, words: str) -> None:
    """Long keys, deep nesting and thousands of faults end in a short error, before they cost time or memory."""
    with pytest.raises(ConfigError, match=words) as caught:
        parse_job(text)
    assert len(str(caught.value)) < 5000


def test_a_missing_key_is_named_though_a_value_has_its_name() -> None:
    """A target column that is called as the key which is not there."""
    text = JOB.format(method="", cohort="").replace('target = "y"', 'target = "task"')
    with pytest.raises(ConfigError, match=r"^job\.toml: data\.task: missing; add it$"):
        parse_job(re.sub(r"(?m)^task = .*\n", "", text), "job.toml")


def test_an_unknown_method_is_named_with_those_that_are_known() -> None:
    """Its package may not be installed here; what is known here is listed."""
    with pytest.raises(
        ConfigError, match=r"^job\.toml: method: 'name' is 'nowton', not known here; known are .*'probe'"
    ):
        parse_job(JOB.format(method="", cohort="").replace("newton", "nowton"), "job.toml")


def test_text_that_is_no_toml_names_file_and_place() -> None:
    """A syntax error gives file, line and column."""
    with pytest.raises(ConfigError, match=r"job.toml: not valid TOML: .*line 1"):
        parse_job("name = nonsense\nseed = 1\n", "job.toml")


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    """A folder, and bytes that are no text: the path, the reason in words, and what to do."""
    with pytest.raises(ConfigError) as caught:
        load_job(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory); check the path and its rights"
    (tmp_path / "job.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match=r"job.toml: not UTF-8 text .*; save it as UTF-8"):
        load_job(tmp_path / "job.toml")
