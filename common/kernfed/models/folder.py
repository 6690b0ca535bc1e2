"""The two files of a model, of whatever kind: one holds its arrays, the other all else. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed import files
from kernfed.arrays import Array
from kernfed.artifact_names import MODEL_ARRAYS, MODEL_FACTS
from kernfed.errors import ConfigError

AGAIN = "fetch both files again from the job"


@dataclass(frozen=True)
class Pair:
    """Names of the two files, and what to do about files that are not sound."""

    arrays: str = MODEL_ARRAYS
    facts: str = MODEL_FACTS
    remedy: str = AGAIN
    private: bool = False
    """Whether this user alone may read them."""

    def write(
        self, folder: Path | str, facts: Mapping[str, Any], arrays: Mapping[str, Array], *, durable: bool
    ) -> None:
        """Write both, each atomically; the facts, which name the digest of the arrays, last.

        The same model gives the same bytes.

        Args:
            folder: Made where it does not exist.
            facts: JSON values, with `format`.
            arrays: By name.
            durable: Whether to wait for the disk; False where the caller syncs the folder.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True, mode=0o700 if self.private else 0o777)
        mode = 0o600 if self.private else None
        data: bytes = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        named = {**facts, "arrays_sha256": hashlib.sha256(data).hexdigest()}
        told = canonical(named, indent=2, allow_nan=self.private)  # settings of a client's own model may be NaN
        files.replace(place / self.arrays, data, durable=durable, mode=mode)
        files.replace(place / self.facts, told + b"\n", durable=durable, mode=mode)

    def read_facts(self, folder: Path | str) -> dict[str, Any]:
        """The facts alone, of a model of any format.

        Raises:
            ConfigError: The file is missing or damaged; names it.
        """
        path = Path(folder) / self.facts
        try:
            facts = json.loads(self._bytes(path))
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"{path} is damaged: it holds no JSON ({err}); {self.remedy}") from err
        if not isinstance(facts, dict) or not isinstance(facts.get("format"), str):
            raise ConfigError(f"{path}: format: names no format of a model; {self.remedy}")
        return facts

    def read(self, folder: Path | str, wanted: str) -> tuple[dict[str, Any], dict[str, Array]]:
        """Read both files.

        Args:
            folder: Where they are.
            wanted: The format.

        Returns:
            The facts, and the arrays by name.

        Raises:
            ConfigError: A file is missing, damaged, of another format, or from another model than its fellow.
        """
        facts, path = self.read_facts(folder), Path(folder) / self.arrays
        if facts["format"] != wanted:
            raise ConfigError(f"{Path(folder) / self.facts}: format: {facts['format']!r}, want {wanted!r}")
        data = self._bytes(path)
        if hashlib.sha256(data).hexdigest() != facts.get("arrays_sha256"):
            raise ConfigError(f"{path} is damaged or belongs to another {self.facts} (digests differ); {self.remedy}")
        try:
            return facts, dict(load(data))
        except (SafetensorError, ValueError, KeyError) as err:
            raise ConfigError(f"{path} is not a safetensors file: {err}; {self.remedy}") from err

    def refuse(self, folder: Path | str, what: object) -> ConfigError:
        """The error of facts that do not make the model that they say."""
        return ConfigError(f"{Path(folder) / self.facts} does not describe a model: {what}; {self.remedy}")

    def _bytes(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as err:
            raise ConfigError(
                f"{path} cannot be read ({err.strerror}); give the folder that holds {self.facts} and {self.arrays}"
            ) from err


def canonical(facts: Any, indent: int | None = None, *, allow_nan: bool = False) -> bytes:
    """JSON of which the same facts give the same bytes."""
    return json.dumps(facts, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=allow_nan).encode()


def facts_sha256(folder: Path) -> str:
    """Digest of `model.json`, which names that of the arrays: of a model, whatever it is. 64 hexadecimal digits."""
    return hashlib.sha256((folder / MODEL_FACTS).read_bytes()).hexdigest()
