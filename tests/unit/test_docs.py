"""The docs agree with the code: tables, examples, links, and every command that a page shows."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
import shlex
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from kernfed.cli.later import load_command
from kernfed.cli.main import app as operator_app
from kernfed.federation.messages.base import Kind
from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.toml_file import parse_toml
from kernfed_client.cli import app as client_app
from kernfed_client.steps.registry import STEPS
from kernfed_server.__main__ import app as coordinator_app
from kernfed_server.config import CoordinatorFile
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_simulation.__main__ import app as simulate_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
APPS = {
    "kernfed": operator_app,
    "kernfed-client": client_app,
    "kernfed-coordinator": coordinator_app,
    "kernfed-simulate": simulate_app,
}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [body for found, body in fences if found == language]


def test_tables_are_those_of_the_code(reference: ModuleType) -> None:
    """`make docs` has nothing to write."""
    assert reference.main(["--check"]) == 0


def test_the_types_of_a_jobs_classes_are_those_of_the_code() -> None:
    """`make docs` has nothing to write for type checkers either; what it writes is what Python reads."""
    writer = runpy.run_path(str(ROOT / "tools" / "write_stub.py"))
    assert writer["main"](["--check"]) == 0
    ast.parse(writer["stub"]())


def test_rooms_have_what_their_indexes_say() -> None:
    """`make docs` has nothing to write into the rooms."""
    assert runpy.run_path(str(ROOT / "tools" / "write_index.py"))["main"](["--check"]) == 0


def test_a_changed_key_makes_a_page_stale(reference: ModuleType) -> None:
    """A default that differs from the model's is found."""
    text = page("jobs.md")
    changed = text.replace("| `num_frequencies` | integer ≥ 1, ≤ 1000000 | `500` |", "| `num_frequencies` | | `499` |")
    assert changed != text
    assert reference.render(changed) == text


def test_every_section_has_a_table(reference: ModuleType) -> None:
    """No model with keys of its own is left out of the pages."""
    shown = {name for p in PAGES for name in re.findall(r"<!-- table: (\w+) -->", p.read_text(encoding="utf-8"))}
    assert shown - {"errors"} == reference.MODELS.keys()


def test_every_error_has_a_remedy(reference: ModuleType) -> None:
    """Each reason stands in errors.md once, with a remedy."""
    rows = [line.split("|") for line in page("errors.md").splitlines() if line.startswith("| `")]
    assert [row[1].strip(" `") for row in rows] == [cls.reason for cls in reference.error_classes()]
    assert all(len(row[4].strip()) > 10 for row in rows)


def test_reasons_are_unique(reference: ModuleType) -> None:
    """A reason names one class."""
    reasons = [cls.reason for cls in reference.error_classes()]
    assert len(set(reasons)) == len(reasons)


def test_example_files_are_valid() -> None:
    """The TOML of each page is what the page says it is."""
    for name, model in (("jobs.md", JobFile), ("client-file.md", ClientFile), ("coordinator-file.md", CoordinatorFile)):
        (text,) = blocks(page(name), "toml")
        assert tomllib.loads(text)
        parse_toml(model, text, name)


def test_every_kind_is_explained() -> None:
    """client-file.md tells a site what each kind of its policy is."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", page("client-file.md"), re.MULTILINE)
    assert rows == [kind.value for kind in Kind]


def test_every_step_says_what_it_lets_out() -> None:
    """client-file.md lists each step that tells anything of a client's rows, and the guard that it is under."""
    rows = [line for line in page("client-file.md").splitlines() if re.match(r"\| `\w+\.\w+`", line)]
    named = {step for row in rows for step in re.findall(r"`(\w+\.\w+)`", row.split("|")[1])}
    told = {request.step for request in STEPS if request.kinds}
    assert told <= named, told - named
    assert named <= {request.step for request in STEPS}


def test_every_method_is_described(reference: ModuleType) -> None:
    """Each method that the coordinator runs has a row in the table of methods, keys in jobs.md, and a page."""
    assert set(reference.METHODS) == set(WORKFLOWS)
    rows = re.findall(r"^\| `([\w-]+)` \|.*\]\(\w+\.md\) \|$", page("methods/README.md"), re.MULTILINE)
    assert rows == list(reference.METHODS)
    for name in reference.METHODS:
        assert re.search(rf"^### {name}$", page("jobs.md"), re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "methods").glob("[!R]*.md")), ids=lambda p: p.stem)
def test_methods_have_five_headings(path: Path) -> None:
    """Every page of a method has the same headings, so that a reader finds the same thing in the same place."""
    headings = ["What you get", "Formula", "Settings", "What leaves a site", "When not to use it"]
    assert re.findall(r"^## (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE) == headings


def test_every_room_has_a_page() -> None:
    """A page of methods has the name of the room that holds their code."""
    rooms = {path.parent.name for path in (ROOT / "common" / "kernfed" / "methods").glob("*/__init__.py")}
    assert {path.stem for path in (ROOT / "docs" / "methods").glob("[!R]*.md")} == rooms


def test_every_step_is_shown_once(reference: ModuleType) -> None:
    """All steps that a client agrees to run stand in the tables of the pages, and none stands there twice."""
    shown = [
        request
        for path in (ROOT / "docs" / "methods").glob("*.md")
        for prefixes in re.findall(r"<!-- steps: ([\w ]+) -->", path.read_text(encoding="utf-8"))
        for request in reference.requests_of(prefixes.split())
    ]
    assert sorted(r.step for r in shown) == sorted(r.step for r in STEPS)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda p: p.stem)
def test_decisions_have_their_parts(path: Path) -> None:
    """A decision's page has its number, context, decision and consequences."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


def test_the_architecture_names_files_that_exist() -> None:
    """Each file in its table of subjects is there; one without a folder lies beside the one before it."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("| subject | files |")[2].partition("\n\n")[0]
    folder, found = ROOT, 0
    for name in re.findall(r"`([\w/]+\.py)`", table):
        folder = (ROOT / name).parent if "/" in name else folder
        assert (folder / Path(name).name).is_file(), name
        found += 1
    assert found > 20


FLOORS = ("common/kernfed", "server/kernfed_server", "client/kernfed_client", "simulation/kernfed_simulation")


def test_page_and_picture_of_the_house_show_every_room() -> None:
    """Each folder of a package is in the page's tree and in the picture; generated code is in the tree alone."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.partition("proto/kernfed/v1/")[2].partition("```")[0]
    picture = " ".join(re.findall(r">([^<>]+)</text>", (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")))
    for floor in FLOORS:
        rooms = {path.parent.name for path in (ROOT / floor).glob("*/__init__.py")}
        families = {path.parent.name for path in (ROOT / floor / "methods").glob("*/__init__.py")}
        assert {room for room in rooms if f"{room}/" not in tree} == set(), floor
        words = set(re.findall(r"\w+", picture))
        assert (rooms | families) - {"v1"} <= words, floor


def anchors(path: Path) -> set[str]:
    """The fragments that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Relative links point to files that exist, and to headings that these have."""
    text = path.read_text(encoding="utf-8")
    for target, fragment in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" not in target:
            file = path.parent / target if target else path
            assert file.exists(), target
            assert not fragment or fragment in anchors(file), f"{target}#{fragment}"


def shown_commands() -> list[tuple[str, str]]:
    found = []
    for path in PAGES:
        lines = [line for block in blocks(path.read_text(encoding="utf-8"), "") for line in block.splitlines()]
        for line in lines:
            for part in re.split(r"[|&;]|\bdo\b", line.split("#")[0]):
                if part.split() and part.split()[0] in (*APPS, "make"):
                    found.append((str(path.relative_to(ROOT)), part.strip()))
    return found


@pytest.mark.parametrize(("where", "line"), shown_commands())
def test_commands_exist(where: str, line: str) -> None:
    """Every command that a page shows is one that we have, with options that it knows."""
    program, *words = shlex.split(line)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert {w for w in words if "=" not in w} <= targets
        return
    command: Any = typer.main.get_command(APPS[program])
    while (
        commands := getattr(command, "commands", None)
    ) is not None:  # a group; typer brings click under its own name
        name = words.pop(0)
        assert name in commands, f"{where}: {program} has no command {name}"
        command = commands[name]
        if source := getattr(command, "source", ""):
            command = load_command(source)
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= known | {"--help"}, f"{where}: {line}"


@pytest.mark.parametrize(
    "line", ["kernfed job sbmit a.toml", "kernfed job submit a.toml --wach", "kernfed-client enroll -"]
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    """A mistyped command, at any level, or option fails the check of the pages."""
    with pytest.raises(AssertionError):
        test_commands_exist("a page", line)
