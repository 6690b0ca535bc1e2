"""What is in the images, and what is not."""

from __future__ import annotations

import json
import posixpath
import re
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

import docker
import pytest
from docker.errors import ContainerError

from kernfed_testing.machine.containers import TAG

IMAGES = ("kernfed-coordinator", "kernfed-client")
MAX_MB = {"kernfed-coordinator": 600, "kernfed-client": 1500}
"""Bounds on the images' sizes with a base of Debian packages and torch for CPUs, with a little room."""

SECRETS = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----[\r\n]+[A-Za-z0-9+/=\r\n]{60}|kft1\.[A-Za-z0-9_-]{60}")
"""A private key in PEM, with its key and not only a mention of its first line; an enrolment token."""

LIBRARIES_OWN = re.compile(r"^/usr/(?!local/bin/)|/site-packages/(?!kernfed)")
"""The distribution and libraries bring keys for self-tests (GnuTLS has them in its code); they are not ours."""

UNWANTED = ("cc", "gcc", "g++", "make", "pip", "git", "curl", "wget", "nc", "ssh", "sudo")


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest, engine: docker.DockerClient) -> Any:
    """Each image in turn."""
    return engine.images.get(f"{request.param}:{TAG}")


def run(engine: docker.DockerClient, image: Any, command: str) -> str:
    """Run a shell line in a container of an image, without a network."""
    container = engine.containers.create(image, entrypoint=["sh", "-c", command], network_mode="none", read_only=True)
    try:
        container.start()
        status = container.wait()["StatusCode"]
        if status:
            raise ContainerError(container, status, command, image, container.logs(stdout=False))
        return str(container.logs(stderr=False).decode())
    finally:
        container.remove(force=True, v=True)  # with the volume that the image asks for


def test_user_labels_and_health(image: Any) -> None:
    """An image runs as a user without rights, knows its release, and how to ask for health."""
    config = image.attrs["Config"]
    assert config["User"] == "10001:10001"
    labels = {key.rpartition(".")[2] for key in config["Labels"] if key.startswith("org.opencontainers.image.")}
    assert labels >= {"title", "description", "version", "revision", "licenses"}
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["Entrypoint"][0] == "tini"


def test_size(image: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """An image is not larger than it was; the size is printed."""
    name = image.attrs["Config"]["Labels"]["org.opencontainers.image.title"]
    megabytes = image.attrs["Size"] / 1e6
    with capsys.disabled():
        print(f"\n{name}: {megabytes:.0f} MB")
    assert megabytes < MAX_MB[name]


def test_no_tools_beyond_need(engine: docker.DockerClient, image: Any) -> None:
    """No compiler, installer, downloader or remote shell, nothing that gives rights, no cache."""
    found = run(engine, image, f"command -v {' '.join(UNWANTED)} || true")
    assert found.split() == []
    assert run(engine, image, "find / -xdev -perm /6000 -type f 2>/dev/null; true") == ""
    caches = "/var/lib/apt/lists /var/cache/apt /root/.cache /wheelhouse /src"
    assert run(engine, image, f"find {caches} -type f -size +0 2>/dev/null; true") == ""


def test_coordinator_has_no_torch(engine: docker.DockerClient) -> None:
    """The coordinator's image does without the libraries that only clients compute with."""
    script = "import importlib.util as u; print([m for m in ('torch', 'pyarrow', 'pandas') if u.find_spec(m)])"
    found = run(engine, f"kernfed-coordinator:{TAG}", f'python3 -c "{script}"')
    assert found.strip() == "[]"


def files(engine: docker.DockerClient, image: Any) -> Iterator[tuple[str, bytes]]:
    """Every file of every layer, also of those that a later layer hides: path, content."""
    with tempfile.TemporaryFile() as saved:
        for piece in image.save(chunk_size=1 << 20):
            saved.write(piece)
        saved.seek(0)
        with tarfile.open(fileobj=saved) as archive:
            manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]  # every image has a manifest
            for layer in manifest[0]["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(layer)) as tree:
                    for member in tree:
                        if member.isfile() and member.size < 4 << 20:
                            content = tree.extractfile(member)
                            assert content is not None
                            yield f"/{posixpath.normpath(member.name)}", content.read()


def test_no_secret_in_any_layer(engine: docker.DockerClient, image: Any) -> None:
    """No layer holds a private key or a token, and none was passed through the build."""
    count = 0
    for path, content in files(engine, image):
        count += 1
        if not LIBRARIES_OWN.search(path):
            assert not SECRETS.search(content), path
        assert not path.startswith(("/var/lib/kernfed/", "/run/kernfed/tokens/")), path
    assert count > 5000
    assert not any("kft1." in step.get("CreatedBy", "") for step in image.history())


def test_search_finds_what_it_looks_for() -> None:
    """The search for secrets finds keys and tokens as kernfed writes them."""
    from kernfed.pki.authority import key_pem, new_key

    assert SECRETS.search(key_pem(new_key()))
    assert SECRETS.search(b"token=kft1." + b"a" * 120)
    assert not SECRETS.search(b'if text.startswith("-----BEGIN PRIVATE KEY-----"):')
