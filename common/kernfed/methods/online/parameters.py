"""The coordinator's artifact of an online job: every kernel's parameters, without any client's weights.

`online.safetensors` holds arrays, `online.json` all else. A client's own mix of the kernels is the model that it keeps
(`kernfed-client predict`); with equal weights these parameters are what a new client would begin with.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kernfed.arrays import Floats
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.losses import LOSSES, Loss
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

    def predict(self, rows: Floats, weights: Floats | None = None) -> Floats:
        """Predict rows with a mix of the kernels.

        Args:
            rows: Numbers in the data's units, (n, d).
            weights: On the simplex, (N,); unset: equal.

        Returns:
            (n,): numbers in the target's units, or probabilities of the positive class.
        """
        n = self.dictionary.num_kernels
        w = np.full(n, 1.0 / n) if weights is None else weights
        z = online.features((rows - self.mean) / self.scale, online.draw(self.dictionary))
        of_kernels = online.predictions(z, self.theta)
        f = (of_kernels if self.offset is None else of_kernels + self.offset) @ w
        told: Floats = self.target_low + self.target_span * LOSSES[self.loss].served(f)
        return told

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
        }
        arrays = {"theta": self.theta, "mean": self.mean, "scale": self.scale}
        if self.offset is not None:
            arrays["offset"] = self.offset
        PAIR.write(folder, facts, arrays, durable=durable)


def load_parameters(folder: Path | str) -> OnlineParameters:
    """Load what `OnlineParameters.save` wrote.

    Raises:
        ConfigError: A file is missing or damaged.
    """
    known = PAIR.read_facts(folder)["format"]
    facts, arrays = PAIR.read(folder, FORMAT_OFFSETS if known == FORMAT_OFFSETS else FORMAT)
    try:
        return OnlineParameters(
            feature_names=tuple(facts["feature_names"]),
            target=facts["target"],
            classes=tuple(facts["classes"]),
            mean=arrays["mean"],
            scale=arrays["scale"],
            target_low=facts["target_low"],
            target_span=facts["target_span"],
            loss=Loss(facts["loss"]),
            dictionary=Dictionary(
                tuple(facts["lengthscales"]), facts["num_frequencies"], facts["num_columns"], facts["seed"]
            ),
            theta=arrays["theta"],
            round_num=facts["round"],
            offset=arrays["offset"] if known == FORMAT_OFFSETS else None,
        )
    except (ValueError, KeyError, TypeError) as err:
        raise PAIR.refuse(folder, err) from err
