"""A mean of two of a client's models: of that of its own rows alone, and of the distilled one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernfed.arrays import Array, Floats
from kernfed.methods.distill.blend import blend
from kernfed_client.methods.distill.learner import Fitted
from kernfed_client.models.private_model import Scorer, spread

KIND = "blend"
_OWN, _DISTILLED = "own", "distilled"


class Blended:
    """(1 - s) f_alone + s f_distilled; see `kernfed_client.methods.distill.learner.Fitted`."""

    def __init__(self, own: Fitted, distilled: Fitted, share: float) -> None:
        """Take the models and s, between 0 and 1."""
        self._own, self._distilled, self._share = own, distilled, share

    def public(self) -> Floats:
        """Predictions on the public points, (N_p, C)."""
        return blend(self._own.public(), self._distilled.public(), self._share)

    def scores(self, x: Floats) -> Floats:
        """Predictions for standardised rows, (m, C)."""
        return blend(self._own.scores(x), self._distilled.scores(x), self._share)

    def parts(self) -> tuple[str, Mapping[str, Array], Mapping[str, Any], Scorer]:
        """Both models side by side: the names of arrays have `own.` or `distilled.` before them."""
        arrays: dict[str, Array] = {}
        details: dict[str, Any] = {"share": self._share}
        scorers = []
        for name, fitted in ((_OWN, self._own), (_DISTILLED, self._distilled)):
            kind, its_arrays, its_details, scorer = fitted.parts()
            arrays |= {f"{name}.{key}": array for key, array in its_arrays.items()}
            details[name] = {"kind": kind, "details": dict(its_details)}
            scorers.append(scorer)
        return KIND, arrays, details, _BlendScorer(scorers[0], scorers[1], self._share)


def blend_scorer(facts: Mapping[str, Any], make: Callable[[str, Mapping[str, Any]], Scorer]) -> Scorer:
    """Scores of a kept mean of two models.

    Args:
        facts: What the model's file holds.
        make: (kind, facts of one model) -> its scorer.
    """
    arrays, details = facts["arrays"], facts["details"]
    scorers = []
    for name in (_OWN, _DISTILLED):
        own = {key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")}
        part = details[name]
        scorers.append(make(part["kind"], {**facts, "arrays": own, "details": part["details"]}))
    return _BlendScorer(scorers[0], scorers[1], float(details["share"]))


class _BlendScorer:
    """See `kernfed_client.models.private_model.SpreadScorer`."""

    def __init__(self, own: Scorer, distilled: Scorer, share: float) -> None:
        self._own, self._distilled, self._share = own, distilled, share

    def __call__(self, x: Floats, device: str) -> Floats:
        return blend(self._own(x, device), self._distilled(x, device), self._share)

    def spread(self, x: Floats, device: str) -> Floats:
        return blend(spread(self._own, x, device), spread(self._distilled, x, device), self._share)
