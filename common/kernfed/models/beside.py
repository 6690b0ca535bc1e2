"""A job's model with others beside it, for a person who wants to compare or to choose otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol


class Saved(Protocol):
    """Something that can be saved."""

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write its files to a folder; `durable` is False where the caller syncs the folder."""
        ...


@dataclass(frozen=True, slots=True)
class ModelsBeside:
    """The model that the job delivers, and others by name."""

    model: Saved
    others: Mapping[str, Saved]
    """Name to model; the files of each begin with it, e.g. `weighted-model.safetensors`."""

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write the files of all; the delivered model's have their ordinary names, and are written last."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, other in self.others.items():
            with TemporaryDirectory(dir=place, prefix=".", suffix=".part") as part:
                other.save(part, durable=durable)
                for path in sorted(Path(part).iterdir()):
                    path.replace(place / f"{name}-{path.name}")
        self.model.save(place, durable=durable)
