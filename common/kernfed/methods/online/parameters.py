"""The coordinator's artifact of an online job: every kernel's parameters, without any client's weights.

`online.safetensors` holds arrays, `online.json` all else. A client's own mix of the kernels is the model that it keeps
(`kernfed-client predict`); with equal weights these parameters are what a new client would begin with.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from kernfed.arrays import Floats
from kernfed.columns.plan import ColumnPlan
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.losses import Loss
from kernfed.models.columns_fact import columns_fact
from kernfed.models.folder import Pair

FORMAT = "kernfed.online/1"
FORMAT_OFFSETS = "kernfed.online/2"
"""With a constant for each kernel, which a reader of the former would leave out."""
PAIR = Pair("online.safetensors", "online.json")


@dataclass(frozen=True, eq=False)
class OnlineParameters:
    """Parameters of all kernels after a round. d columns, N kernels, 2 D features each."""

    feature_names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    """Of a binary task: negative, positive."""
    mean: Floats
    """Subtracted from the columns, (d,)."""
    scale: Floats
    """By which they are then divided, (d,): deviation times the rows' norm."""
    target_low: float
    target_span: float
    loss: Loss
    dictionary: Dictionary
    theta: Floats
    """(N, 2 D)."""
    round_num: int
    offset: Floats | None = None
    """A constant beside each kernel, (N,); None: there is none."""
    columns: tuple[ColumnPlan, ...] = ()
    """Of the table, from which the columns are made; empty: these are its columns."""

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write both files; the facts, which name the digest of the arrays, last.

        Args:
            folder: Made where it does not exist.
            durable: Whether to wait for the disk; False where the caller syncs the folder.
        """
        facts = {
            "format": FORMAT if self.offset is None else FORMAT_OFFSETS,
            "feature_names": self.feature_names,
            "target": self.target,
            "classes": self.classes,
            "target_low": self.target_low,
            "target_span": self.target_span,
            "loss": self.loss,
            **asdict(self.dictionary),
            "round": self.round_num,
            **columns_fact(self.columns),
        }
        arrays = {"theta": self.theta, "mean": self.mean, "scale": self.scale}
        if self.offset is not None:
            arrays["offset"] = self.offset
        PAIR.write(folder, facts, arrays, durable=durable)
