"""`kernfed-client peers` prints fingerprints, and keeps those that were compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import load_client_file
from kernfed.pki.identity import Role
from kernfed_client.commands.peers import peers
from kernfed_client.sums.peers import PEERS, accepted
from kernfed_testing.identities import make_identities


def site(folder: Path, policy: str = "") -> Path:
    """A client file beside the identity of a client."""
    make_identities(folder).make(Role.CLIENT, "ann", into=folder / "identity")
    file = folder / "client.toml"
    file.write_text(f'[datasets.default.train]\npath = "rows.csv"\n{policy}')
    return file


def test_what_was_accepted_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A site is accepted by name and fingerprint, replaced, and removed; the own one is printed first."""
    file, key, other = site(tmp_path), "ab" * 32, "cd" * 32
    peers(config=file, accept=("bob", key.upper()))
    peers(config=file, accept=("cat", other))
    peers(config=file, accept=("cat", key))
    capsys.readouterr()
    peers(config=file)
    own, *rest = capsys.readouterr().out.splitlines()
    assert own.endswith("  this site")
    assert rest == [f"{key}  bob", f"{key}  cat"]
    assert accepted(load_client_file(file)) == {"bob": key, "cat": key}
    peers(config=file, remove="bob", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"own": own.split()[0], "peers": {"cat": key}}


def test_what_is_no_fingerprint_of_another_site_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Short ones, names that none can have, the own key, and sites that were not accepted."""
    file = site(tmp_path)
    peers(config=file)
    own = capsys.readouterr().out.split()[0]
    for accept, words in ((("bob", "ab"), "no fingerprint"), (("B b", "ab" * 32), "valid name"), (("bob", own), "own")):
        with pytest.raises(ConfigError, match=words):
            peers(config=file, accept=accept)
    with pytest.raises(ConfigError, match="not among the sites"):
        peers(config=file, remove="bob")


def test_file_and_command_must_agree(tmp_path: Path) -> None:
    """Two keys of one site are refused, and so is a damaged list."""
    file = site(tmp_path, f'[policy.secure_sum]\npeers.bob = "{"ab" * 32}"\n')
    assert accepted(load_client_file(file)) == {"bob": "ab" * 32}
    with pytest.raises(ConfigError, match="names another key of bob; change it there"):
        peers(config=file, accept=("bob", "cd" * 32))
    (tmp_path / "identity" / PEERS).write_text(f'{{"bob": "{"cd" * 32}"}}')
    with pytest.raises(ConfigError, match="names another key of bob than"):
        accepted(load_client_file(file))
    for damage in ("[", "[]", '{"bob": 1}'):
        (tmp_path / "identity" / PEERS).write_text(damage)
        with pytest.raises(ConfigError, match="accept the peers again"):
            accepted(load_client_file(file))
