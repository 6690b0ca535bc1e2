"""The sites whose keys this one accepted, after it compared their fingerprints by another way than the federation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kernfed import files
from kernfed.errors import ConfigError
from kernfed.jobs.client_file import ClientFile

PEERS = "peers.json"
"""In the identity folder: what `kernfed-client peers --accept` wrote."""


def accepted(file: ClientFile) -> dict[str, str]:
    """Fingerprint of each accepted site's key, by its name: of the client file, and of the command.

    Raises:
        ConfigError: What the command wrote cannot be read, or says otherwise than the client file.
    """
    found = dict(file.policy.secure_sum.peers)
    for name, key in read(file.identity).items():
        if found.setdefault(name, key) != key:
            raise ConfigError(
                f"policy.secure_sum.peers names another key of {name} than {file.identity / PEERS}; remove one of them"
            )
    return found


def read(identity: Path) -> dict[str, str]:
    """What `--accept` wrote; nothing where it never ran.

    Raises:
        ConfigError: It cannot be read.
    """
    path = identity / PEERS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise ConfigError(
            f"{path} cannot be read ({err}); restore it, or remove it and accept the peers again"
        ) from err
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError(f"{path} is not a table of names and fingerprints; remove it and accept the peers again")
    return found


def write(identity: Path, peers: Mapping[str, str]) -> None:
    """Keep accepted sites in an identity folder."""
    text = json.dumps(dict(sorted(peers.items())), indent=2) + "\n"
    files.replace(identity / PEERS, text.encode(), durable=True, mode=0o600)
