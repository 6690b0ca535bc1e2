"""What deploy/ says, held against the code."""

from __future__ import annotations

import ast
import hashlib
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernfed_testing.limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = runpy.run_path(str(ROOT / "deploy" / "image" / "requirements.py"))
SOURCES = {"coordinator": ROOT / "server" / "kernfed_server", "client": ROOT / "client" / "kernfed_client"}
MODULES = {"scikit-learn": "sklearn"}
"""Packages whose module has another name."""

IMPORT_ALL = """
import importlib, pkgutil, sys
package, *missing = sys.argv[1:]

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ImportError(f"{name} is not in the image")

sys.meta_path.insert(0, Missing())
for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
    if not module.name.endswith(("__main__", ".env")):  # the latter is run by alembic alone
        importlib.import_module(module.name)
"""


def left_out(image: str) -> set[str]:
    """Modules that an image does without."""
    return {MODULES.get(name, name) for name in REQUIREMENTS["LEFT_OUT"][image]}


@pytest.mark.slow
@pytest.mark.parametrize("image", SOURCES)
def test_every_module_loads_with_what_its_image_has(image: str) -> None:
    """All modules of a daemon can be imported without the packages that its image leaves out."""
    command = [sys.executable, "-c", IMPORT_ALL, SOURCES[image].name, *left_out(image)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("image", SOURCES)
def test_no_function_needs_what_its_image_leaves_out(image: str) -> None:
    """No function of a daemon imports such a package later either."""
    missing = left_out(image)
    for path in sorted(SOURCES[image].rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not missing & {name.partition(".")[0] for name in names}, f"{path}:{node.lineno}"  # type: ignore[attr-defined]  # imports have a line


def test_requirements_are_those_of_the_package() -> None:
    """What is left out is a dependency of the package, so the lists hold no stale name; the rest is installed."""
    lines = {image: REQUIREMENTS["requirements"](image, ROOT / "pyproject.toml") for image in SOURCES}
    names = {image: {REQUIREMENTS["name_of"](line) for line in lines[image]} for image in SOURCES}
    everything = names["coordinator"] | names["client"]
    for image in SOURCES:
        assert not names[image] & REQUIREMENTS["LEFT_OUT"][image]
        assert REQUIREMENTS["LEFT_OUT"][image] <= everything
    assert "psycopg" in names["coordinator"]
    with pytest.raises(SystemExit, match="coordinator or client"):
        REQUIREMENTS["requirements"]("server", ROOT / "pyproject.toml")


def test_a_bill_of_materials_lists_python_and_debian() -> None:
    """What dpkg removed is not in it; both images write theirs as they are built."""
    written = runpy.run_path(str(ROOT / "deploy" / "image" / "bill.py"))
    status = """Package: tini
Status: install ok installed
Architecture: amd64
Version: 1:0.19.0-1+b3
Description: tiny but valid
 init: for containers

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 2
"""
    (tini,) = written["debian_packages"](status, "debian")
    assert (tini["name"], tini["version"]) == ("tini", "1:0.19.0-1+b3")
    assert tini["purl"] == "pkg:deb/debian/tini@1%3A0.19.0-1%2Bb3?arch=amd64"
    names = [component["name"] for component in written["python_packages"]()]
    assert names == sorted(set(names))
    assert {"grpcio", "numpy", "kernfed"} <= set(names)
    for image in SOURCES:
        assert f"bill.py kernfed-{image} " in (ROOT / "deploy" / "Dockerfile").read_text()


def test_a_bill_of_materials_lists_wheels_or_pins(tmp_path: Path) -> None:
    """A wheel has its digest; a folder without wheels, the versions that are pinned."""
    written = runpy.run_path(str(ROOT / "deploy" / "image" / "bill.py"))
    assert written["wheels"](tmp_path) == []
    (tmp_path / "Some_Thing-1.2-py3-none-any.whl").write_bytes(b"wheel")
    (wheel,) = written["wheels"](tmp_path)
    assert (wheel["name"], wheel["version"], wheel["purl"]) == ("some-thing", "1.2", "pkg:pypi/some-thing@1.2")
    assert wheel["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"wheel").hexdigest()}]
    listed = written["pinned"](ROOT / "constraints.txt", ROOT / "deploy" / "constraints.txt")
    assert {(c["name"], c["version"]) for c in listed} >= {*pins(ROOT / "constraints.txt").items()}


def pins(path: Path) -> dict[str, str]:
    """Package to version in a constraints file."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9._-]+==\S+", line) for line in lines)
    return dict(line.split("==") for line in lines)


def test_images_pin_each_package_once() -> None:
    """Two constraint files that both name a package would sooner or later exclude each other."""
    assert not pins(ROOT / "constraints.txt").keys() & pins(ROOT / "deploy" / "constraints.txt").keys()


@pytest.mark.parametrize("unit", ["kernfed-coordinator", "kernfed-client"])
def test_units_are_hardened(unit: str) -> None:
    """A daemon has a user of its own, writes its state folder alone, and can gain no rights."""
    lines = (ROOT / "deploy" / "systemd" / f"{unit}.service").read_text().splitlines()
    wanted = {
        "User=kernfed",
        f"StateDirectory={unit}",
        "StateDirectoryMode=0700",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "Restart=always",
    }
    assert wanted <= set(lines)


@pytest.mark.parametrize("script", sorted((ROOT / "deploy" / "image").glob("*-entrypoint")), ids=lambda p: p.name)
def test_entrypoint_runs_other_commands_as_they_stand(script: Path) -> None:
    """`docker run IMAGE kernfed pki list` reaches the command, with its arguments whole."""
    done = subprocess.run(
        [str(script), "printf", "%s|", "a b", "c"], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    assert done.stdout == "a b|c|"


@pytest.mark.slow
def test_an_empty_volume_becomes_a_federation_by_init_alone(tmp_path: Path) -> None:
    """Whatever the environment says, a coordinator on an empty volume says what to restore: it may not be mounted.

    `init` makes the federation once, with the ports of the file, and no second time, nor beside data that belong to a
    lost one.
    """
    config = tmp_path / "coordinator.toml"
    config.write_text('listen = "127.0.0.1:18470"\nenrolment_listen = "127.0.0.1:18471"\n')
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "KERNFED_PKI": str(tmp_path / "pki"),
        "KERNFED_TOKENS": str(tmp_path),
        "KERNFED_CONFIG": str(config),
        "KERNFED_FEDERATION": "hearts",
        "KERNFED_HOSTS": "fed.example.org",
        "KERNFED_ENROL": "north",
    }

    def entrypoint(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = str(ROOT / "deploy" / "image" / "coordinator-entrypoint")
        return subprocess.run(
            [script, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    done = entrypoint()
    assert done.returncode == 3, done.stderr
    assert "restore the volume that holds its CA" in done.stderr
    assert not (tmp_path / "pki").exists()
    made = entrypoint("init", "--federation", "hearts", "--host", "fed.example.org", "--operator", "ann")
    assert made.returncode == 0, made.stderr
    ca = (tmp_path / "pki" / "ca.pem").read_bytes()
    assert "dialled as fed.example.org:18470" in made.stdout
    again = entrypoint("init", "--federation", "hearts")
    assert again.returncode == 3
    assert "holds a federation already" in again.stderr
    assert (tmp_path / "pki" / "ca.pem").read_bytes() == ca
    shutil.rmtree(tmp_path / "pki")
    (tmp_path / "data" / "jobs").mkdir(parents=True)
    beside = entrypoint("init", "--federation", "hearts")
    assert beside.returncode == 3
    assert "restore the CA" in beside.stderr


def test_no_deployment_makes_a_federation_on_the_way() -> None:
    """Compose files, manifests and units give the coordinator nothing to make a federation of; the job `init` may."""
    for path in [ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*")]:
        if path.suffix in (".yml", ".yaml", ".service") and path.parent.name != "init":
            assert not re.search(r"^[^#]*\b(KERNFED_FEDERATION|init)\b", path.read_text(), re.MULTILINE), path


def test_client_waits_for_its_token_and_no_longer(tmp_path: Path) -> None:
    """A client without a token waits as long as it was told, and then says what to ask the operator for."""
    script = ROOT / "deploy" / "image" / "client-entrypoint"
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "KERNFED_IDENTITY": str(tmp_path / "identity"),
        "KERNFED_TOKEN_FILE": str(tmp_path / "token"),
        "KERNFED_WAIT_S": "1",
    }
    done = subprocess.run([str(script)], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 4
    assert "Ask the operator for a token" in done.stderr


@pytest.mark.parametrize("page", ["deploy.md", "operations.md"])
def test_commands_of_the_pages_leave_no_secret_readable_and_need_no_terminal(page: str) -> None:
    """Tokens and archives that hold the CA's key are files of mode 0600; each `exec` works from a script too."""
    text = (ROOT / "docs" / page).read_text()
    lines = [
        line for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for line in block.splitlines()
    ]
    assert lines
    for line in lines:
        assert not re.search(r"\bexec (?!-T)", line), line
        assert "pip install kernfed" not in line, line  # the package is installed from the checkout beside the page
        if re.search(r">\S+\.token|-czf? ", line):
            assert line.startswith("(umask 077; "), line
        if "/etc/sysusers.d/" in line:
            assert line.startswith("install -D "), line  # no package of Debian makes that folder
