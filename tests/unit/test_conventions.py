"""What a reader of the tests relies on: each says what it shows, asserts it, and lies where its module does."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
UNIT = TESTS / "unit"
ROOMS = {
    "client": ROOT / "client" / "kernfed_client",
    "common": ROOT / "common" / "kernfed",
    "experiments": ROOT / "experiments",
    "server": ROOT / "server" / "kernfed_server",
    "simulation": ROOT / "simulation" / "kernfed_simulation",
}
SCENARIOS = {
    "common/wire/test_recorded_frames.py": "frames of the version before, recorded for every message",
    "server/methods/ridge/test_workflows.py": "all methods on a ridge, held against each other",
    "simulation/test_groups.py": "all methods that deal rows, and the groups that no draw divides",
    "simulation/test_interleavings.py": "sessions, steps and workflows of both ends, frame by frame",
    "simulation/test_invariances.py": "what constants in a target and names of classes do to every method: nothing",
    "simulation/test_long_steps.py": "methods that step, and how a job ends whose steps are too long for numbers",
    "simulation/test_lost_state.py": "a client that loses all it keeps of a job, at any moment",
    "simulation/test_survival_example.py": "the example of times to an event, and its made data",
    "simulation/test_messy_tables.py": "the page on messy tables, and the exports that it reads",
    "simulation/test_no_order.py": "questions and answers of every method in no order",
    "simulation/test_signs.py": "clients of several methods that turn a sign, and how they are named",
    "simulation/test_keys_act.py": "all methods and variants, and which of their settings are read",
}
"""Files that hold no one module, and what they hold."""
HOSTILE = "test_hostile.py"
"""In a room: a peer that sends or asks for absurd numbers."""
FILES = sorted(TESTS.rglob("test_*.py"))
UNIT_FILES = [path for path in FILES if path.is_relative_to(UNIT) and path.parent != UNIT]
CHECKS = {"pytest.raises", "pytest.warns", "pytest.fail"}


def place(path: Path) -> str:
    """A file's name in the ids of tests."""
    return path.relative_to(TESTS).as_posix()


@functools.cache
def cases_of(path: Path) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    """The test functions of a file."""
    found = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return tuple(node for node in found if node.name.startswith("test"))


def says_what_it_shows(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether its docstring begins with a sentence; the source of a bound may follow."""
    return (ast.get_docstring(test) or "").partition("\n\n")[0].endswith(".")


def asserts(test: ast.AST) -> bool:
    """Whether a function asserts, expects an error, or calls an `assert_...`; not whether that proves much."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in CHECKS)
        or (isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith("assert_"))
        for node in ast.walk(test)
    )


def mirrored(path: Path) -> list[Path]:
    """The modules that a file of unit tests may stand for."""
    side, *rooms = path.relative_to(UNIT).parent.parts
    folder, name = ROOMS[side].joinpath(*rooms), path.stem.removeprefix("test_")
    return [folder / f"{name}.py", folder / f"__{name}__.py", folder / name / "__init__.py"]


@pytest.mark.slow
def test_every_test_says_in_a_sentence_what_it_shows() -> None:
    """No test is without a docstring that ends as a sentence does."""
    silent = [
        f"{place(path)}:{test.lineno}" for path in FILES for test in cases_of(path) if not says_what_it_shows(test)
    ]
    assert silent == []


def test_every_test_asserts_something() -> None:
    """No test passes because nothing happened."""
    idle = [f"{place(path)}:{test.lineno}" for path in FILES for test in cases_of(path) if not asserts(test)]
    assert idle == []


def test_unit_tests_lie_where_their_modules_do() -> None:
    """`tests/unit/<side>/<rooms>/test_<module>.py` stands for the module of that name in these rooms."""
    strays = {
        path.relative_to(UNIT).as_posix()
        for path in UNIT_FILES
        if path.name != HOSTILE and not any(module.is_file() for module in mirrored(path))
    }
    assert strays == set(SCENARIOS)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("pass", False),
        ("run(job)", False),
        ("with suppress(ValueError): run(job)", False),
        ("assert run(job)", True),
        ("with pytest.raises(ValueError): run(job)", True),
        ("np.testing.assert_array_equal(run(job), 1)", True),
    ],
)
def test_what_counts_as_an_assertion(body: str, found: bool) -> None:
    """A call alone is no assertion."""
    assert asserts(ast.parse(body)) is found
