"""The classes of all clients, and names that look like spellings of one class."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed_server.jobs.start.classes import unite_classes

MANY = LearningTask.CLASSIFICATION


def schema(task: LearningTask, classes: tuple[str, ...] = ()) -> DataSchema:
    """A schema of a class column."""
    return DataSchema(
        task=task,
        target="kind",
        features=("x0",),
        classes=classes,
        missing=MissingRule.REFUSE,
        test_fraction=0.25,
        seed=0,
    )


def united(*found: tuple[str, ...], task: LearningTask = MANY, classes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Classes of clients a, b, ..."""
    return unite_classes(schema(task, classes), dict(zip("abcdefgh", found, strict=False)))


def test_classes_are_united_and_numbers_sorted_as_numbers() -> None:
    """Number 2 comes before 10; texts are sorted as texts; the job's own list wins."""
    assert united(("10", "2"), ("2", "-1.5")) == ("-1.5", "2", "10")
    assert united(("10", "2"), ("b",)) == ("10", "2", "b")
    assert united(("nan", "2"), ("10",)) == ("10", "2", "nan")
    assert united(("12", "7"), ("1.5",)) == ("1.5", "7", "12")
    assert united(("a",), classes=("z", "a", "m")) == ("z", "a", "m")
    assert united((), task=LearningTask.REGRESSION) == ()


def test_binary_needs_two_classes_and_classification_more_than_one() -> None:
    """Other numbers of classes are refused with what was found."""
    with pytest.raises(DataError, match=r"3 classes in 'kind' \(a, b, c\).*classification"):
        united(("a", "b"), ("c",), task=LearningTask.BINARY)
    with pytest.raises(DataError, match=r"1 classes"):
        united(("a",), task=LearningTask.BINARY)
    with pytest.raises(DataError, match="of one class"):
        united(("a",), ("a",))


@pytest.mark.parametrize(
    ("other", "mapping"),
    [
        (("Benign", "malignant"), '"Benign" = "benign"'),
        (("benign", "MALIGNANT"), '"MALIGNANT" = "malignant"'),
        (("\uff42enign", "malignant"), '"\uff42enign" = "benign"'),
        (("benign", "malig\u00a0nant", "malig nant"), '"malig nant" = "malig\u00a0nant"'),
    ],
)
@pytest.mark.parametrize("task", [LearningTask.BINARY, MANY])
def test_two_spellings_of_a_class_are_refused(task: LearningTask, other: tuple[str, ...], mapping: str) -> None:
    """Names that differ by case, blanks or width alike are refused with the clients' sets and the mapping."""
    with pytest.raises(DataError, match="differ only by case") as told:
        united(("benign", "malignant"), other, task=task)
    assert f"labels = {{ {mapping} }}" in str(told.value)
    assert "  a: 'benign', 'malignant'\n  b: " in str(told.value)


def test_a_binary_task_of_two_spellings_is_refused() -> None:
    """Two sites of one class, each with its own spelling, are no task of two classes."""
    with pytest.raises(DataError, match="differ only by case"):
        united(("benign",), ("Benign",), task=LearningTask.BINARY)


@pytest.mark.parametrize(
    "spelt",
    [
        ("1", "1.0", "01", "+1", "\u0661"),
        ("1.5", "1.50"),
        ("M\u00e9ni\u00e8re", "Meniere", "Me\u0301nie\u0300re", "MENIERE"),
        ("non-smoker", "non smoker", "Non_smoker", "non \u2013 smoker"),
        ("yes", "Y\u200bes", "\uff59\uff45\uff53"),
    ],
)
def test_what_people_write_in_two_ways_is_refused(spelt: tuple[str, ...]) -> None:
    """Zeros and signs of a number, digits of other scripts, accents, hyphens and signs that do not show alike."""
    for one in spelt[1:]:
        with pytest.raises(DataError, match="zeros of a number"):
            united((spelt[0], "other"), (one, "other"))


def test_names_that_are_not_spellings_of_one_are_classes() -> None:
    """Signs, blood groups, bounds, negative numbers and letters of scripts whose marks make letters stay apart."""
    signs = (("+", "-", "++"), ("A+", "A-", "A"), ("<5", "5", "-5", "5-"))
    for names in (*signs, ("\u304b", "\u304c"), ("12", "1-2", "1.2")):
        assert set(united(names)) == set(names)


def test_sites_without_a_class_in_common_are_refused() -> None:
    """0 and 1 at one site, words at the others: refused with the sets and the mapping to write."""
    with pytest.raises(DataError, match="no class in 'kind' in common") as told:
        united(("benign", "malignant"), ("0", "1"))
    assert "  b: '0', '1'" in str(told.value)
    assert "name all in data.classes" in str(told.value)
    assert united(("benign", "malignant"), ("0", "1"), classes=("0", "1", "benign", "malignant"))[0] == "0"


@pytest.mark.parametrize("found", [{"a": ("x",), "b": ("y",), "c": ("z",)}, {"a": ("x", "y"), "b": ("z",)}])
def test_sites_of_one_class_each_are_welcome(found: Mapping[str, tuple[str, ...]]) -> None:
    """A site that saw one class alone is no stranger."""
    assert unite_classes(schema(MANY), found) == ("x", "y", "z")


def test_too_many_classes_are_no_classes() -> None:
    """More than a thousand classes of all clients together are refused, unless the job names them."""
    sets = [("0", *(str(100 * i + j) for j in range(1, 100))) for i in range(11)]
    with pytest.raises(DataError, match=r"1,090 classes in 'kind', more than 1,000"):
        unite_classes(schema(MANY), {f"c{i}": names for i, names in enumerate(sets)})
