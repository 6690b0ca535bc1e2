"""The interface of a client's model in distillation, and kernel ridge regression, the default model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Array, Flags, Floats, Integers
from kernfed.errors import DataError
from kernfed.features.kernels import KernelSpec, PointKernel, check_kernel
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.tasks import TASKS
from kernfed.methods.distill.alpha import check_alpha
from kernfed.methods.distill.blend import Gain, blend, distilled_share, gain
from kernfed.methods.distill.tensors.distillation import (
    DistilledRidge,
    KernelModel,
    check_memory,
    kernel_ridge,
    leave_out,
    memory_needed,
)
from kernfed.methods.distill.tensors.shrinkage import Unshrunk
from kernfed.methods.distill.tensors.spread import spread
from kernfed.tensors.arrays import to_array
from kernfed.tensors.kernels import gram
from kernfed_client.data.local_job import LocalJob
from kernfed_client.models.private_model import Scorer

_KEPT_NUMBERS = 1 << 22
"""Largest kernel matrix of test rows that is kept between evaluations: 32 MiB."""


class Fitted(Protocol):
    """A fitted model."""

    def public(self) -> Floats:
        """Predictions on the public points, (N_p, C)."""
        ...

    def scores(self, x: Floats) -> Floats:
        """Predictions for standardised rows, (m, C), of shape (m, d)."""
        ...

    def parts(self) -> tuple[str, Mapping[str, Array], Mapping[str, Any], Scorer]:
        """Kind, arrays, details and scorer, as `kernfed_client.models.private_model` keeps them."""
        ...


class Learner(Protocol):
    """A client's way to fit. Both functions are deterministic: the same question gives the same bits."""

    def own(self) -> Fitted:
        """Fit own rows alone."""
        ...

    def distilled(self, trained_round: int, targets: Floats, *, lasting: bool, deregularise: bool = False) -> Fitted:
        """Fit own rows together with targets of the public points.

        Args:
            trained_round: Round whose consensus the targets come from.
            targets: (N_p, C).
            lasting: Whether what is learnt is where the next round begins, for models that go on from their last state.
            deregularise: Whether to undo first what the own kernel and ridge shrink; other models pass it over.
        """
        ...

    def compared(self, trained_round: int, targets: Floats) -> Compared | None:
        """Predict own rows by models that have not seen them; None where there are too few.

        Args:
            trained_round: Round whose consensus the targets come from.
            targets: (N_p, C).
        """
        ...


class Compared(NamedTuple):
    """Own rows against models that have not seen them."""

    alone: Floats
    """Errors of the model of own rows alone, (n, C)."""
    distilled: Floats
    """Errors of the model of own rows and public points, (n, C)."""
    unit: Integers
    """Which rows were kept apart together, (n,)."""
    near: Flags
    """Which rows have a public point near them, (n,)."""
    targets: Floats
    """What was to be predicted, (n, C)."""
    spreads: tuple[Floats, Floats] | None = None
    """Deviations that both models expected of their errors, (n,); None: the same everywhere."""

    @property
    def alone_is_better(self) -> bool:
        """Whether the model of own rows alone has the smaller squared error."""
        return float(np.square(self.alone).sum()) < float(np.square(self.distilled).sum())

    @property
    def share(self) -> float:
        """Weight of the distilled model in a mean of both."""
        return distilled_share(self.alone, self.distilled, self.unit, self.near)

    def gain(self, share: float) -> Gain:
        """What such a mean gains over the model of own rows alone."""
        return gain(self.alone, self.distilled, share, self.unit)

    def misfits(self, task: LearningTask, share: float) -> Floats:
        """How badly the rows fit a mean of both, in units of its spread, (n,); see `kernfed.models.coverage`."""
        errors = blend(self.alone, self.distilled, share)
        spreads = 1.0 if self.spreads is None else blend(*self.spreads, share)
        found: Floats = TASKS[task].misfits(errors, self.targets) / spreads
        return found


FEWEST_COMPARED = 5
"""Fewest own rows, copies counting once, by which two models are compared."""


@dataclass(frozen=True)
class Lesson:
    """Rows and targets from which this client's model learns."""

    x: Floats
    """Own rows, standardised, (N, d)."""
    y: Floats
    """Their targets, (N, C): values, 0/1, or one-hot."""
    public: Floats
    """Public points, standardised alike, (N_p, d)."""
    alpha: float
    """Weight of own rows."""
    unit: Integers
    """Which own rows are copies of each other, or of one group, (N,)."""
    near: Flags
    """Which own rows have a public point within a lengthscale of the job's kernel, (N,)."""
    seed: int
    """Of models that draw random numbers; this client's own."""
    free: bool = False
    """Whether kernel ridge regression has an intercept that costs nothing."""
    target_mean: Floats | None = None
    """Around which models without an intercept fit, (C,); None: 0."""

    def only(self, rows: Flags) -> Lesson:
        """The same of some of the own rows alone, (N,)."""
        return replace(self, x=self.x[rows], y=self.y[rows], unit=self.unit[rows], near=self.near[rows])

    @property
    def comparable(self) -> bool:
        """Whether there are rows enough to compare two models."""
        return int(self.unit.max(initial=-1)) + 1 >= FEWEST_COMPARED

    def __post_init__(self) -> None:
        check_alpha(self.alpha)


class KernelLearner:
    """Kernel ridge regression, exact; a round is one matrix product."""

    def __init__(self, job: LocalJob, lesson: Lesson, kernel: KernelSpec, ridge: float, own_ridge: float) -> None:
        """Check that it fits into memory; nothing is computed yet.

        Args:
            job: At this client.
            lesson: What it learns from.
            kernel: The kernel.
            ridge: λ of own rows and public points.
            own_ridge: λ of own rows alone.

        Raises:
            ConfigError: The kernel is none on so many columns.
            DataError: There is too little memory; says what would fit.
        """
        check_kernel(kernel, lesson.x.shape[1])
        num_rows, num_columns = lesson.x.shape
        num_public, num_outputs = len(lesson.public), lesson.y.shape[1]
        needed = memory_needed(num_rows, num_public, num_columns, num_outputs)
        check_memory(needed, job.usable_bytes(), num_rows, num_public)
        self._job, self._kernel, self._lesson = job, kernel, lesson
        self._ridge, self._own_ridge = ridge, own_ridge
        self._x, self._y, self._public = (self._tensor(a) for a in (lesson.x, lesson.y, lesson.public))
        self._own: _FittedKernel | None = None
        self._distilled: DistilledRidge | None = None
        self._unshrunk: Unshrunk | None = None
        self._test: tuple[Floats, Tensor] | None = None

    def own(self) -> Fitted:
        """See `Learner.own`."""
        if self._own is None:
            self._distilled = None  # its matrices are large; they are made again when needed
            model = kernel_ridge(self._kernel, self._x, self._y, self._own_ridge, free=self._lesson.free)
            self._own = _FittedKernel(self, model, None)
        return self._own

    def distilled(self, trained_round: int, targets: Floats, *, lasting: bool, deregularise: bool = False) -> Fitted:
        """See `Learner.distilled`; there is no state from round to round."""
        del trained_round, lasting
        wanted = self._tensor(targets)
        return _FittedKernel(self, None, self._deregulariser()(wanted) if deregularise else wanted)

    def compared(self, trained_round: int, targets: Floats) -> Compared | None:
        """See `Learner.compared`: each row is left out once, with its copies, in closed form."""
        del trained_round
        if not self._lesson.comparable:
            return None
        lesson, unit = self._lesson, self._lesson.unit
        alone = leave_out(self._kernel, self._x, self._y, self._own_ridge, unit, free=lesson.free)
        distilled = self.factored().leave_out(self._tensor(targets), unit)
        spreads = _array(alone.spread), _array(distilled.spread)
        return Compared(_array(alone.errors), _array(distilled.errors), unit, lesson.near, lesson.y, spreads)

    def _deregulariser(self) -> Unshrunk:
        if self._unshrunk is None:
            self._unshrunk = Unshrunk(self._kernel, self._public, self._ridge, free=self._lesson.free)
        return self._unshrunk

    def factored(self) -> DistilledRidge:
        """The distillation problem, factored once."""
        if self._distilled is None:
            lesson = self._lesson
            self._distilled = DistilledRidge(
                self._kernel, self._x, self._y, self._public, self._ridge, lesson.alpha, free=lesson.free
            )
        return self._distilled

    def predict_public(self, model: KernelModel) -> Tensor:
        """A model's predictions on the public points."""
        return model(self._public)

    def scores(self, model: KernelModel, x: Floats) -> Tensor:
        """A model's predictions for rows; the kernel of rows that come again, such as test rows, is kept if small."""
        num_all = len(self._x) + len(self._public)
        if len(x) * num_all > _KEPT_NUMBERS:
            return model(self._tensor(x))
        if self._test is None or self._test[0] is not x:
            points = torch.cat([self._x, self._public])
            self._test = x, gram(self._kernel, self._tensor(x), points)
        # A model of own rows alone has the first of these points, a distilled one all.
        return model.shifted(self._test[1][:, : len(model.points)] @ model.coefficients)

    def _tensor(self, x: Floats) -> Tensor:
        return torch.tensor(np.ascontiguousarray(x), dtype=torch.float64, device=self._job.device)


class _FittedKernel:
    def __init__(self, learner: KernelLearner, model: KernelModel | None, targets: Tensor | None) -> None:
        self._learner, self._known, self._targets = learner, model, targets

    def _model(self) -> KernelModel:
        if self._known is None:
            assert self._targets is not None  # noqa: S101  # one of the two is there
            self._known = self._learner.factored().model(self._targets)
        return self._known

    def public(self) -> Floats:
        if self._targets is not None:
            return _array(self._learner.factored().predict_public(self._targets))
        return _array(self._learner.predict_public(self._model()))

    def scores(self, x: Floats) -> Floats:
        return _array(self._learner.scores(self._model(), x))

    def parts(self) -> tuple[str, Mapping[str, Array], Mapping[str, Any], Scorer]:
        model = self._model()
        details = {
            "kernel": model.kernel.kernel.value,
            "lengthscales": list(model.kernel.lengthscales),
            "intercept": model.kernel.intercept,
        }
        arrays = {"points": _array(model.points), "coefficients": _array(model.coefficients)}
        if model.offset is not None:
            arrays["offset"] = _array(model.offset)
        if model.penalties is not None:
            arrays["penalties"] = _array(model.penalties)
        return "kernel-ridge", arrays, details, kernel_scorer(arrays, details)


def kernel_scorer(arrays: Mapping[str, Array], details: Mapping[str, Any]) -> Scorer:
    """Scores of a kept kernel model."""
    kernel = KernelSpec(PointKernel(details["kernel"]), tuple(details["lengthscales"]), bool(details["intercept"]))
    return _KernelScorer(kernel, arrays)


class _KernelScorer:
    """See `kernfed_client.models.private_model.SpreadScorer`."""

    def __init__(self, kernel: KernelSpec, arrays: Mapping[str, Array]) -> None:
        self._kernel, self._arrays = kernel, arrays

    def __call__(self, x: Floats, device: str) -> Floats:
        return _array(self._model(device)(_placed(x, device)))

    def spread(self, x: Floats, device: str) -> Floats:
        return _array(spread(self._model(device), _placed(x, device)))

    def _model(self, device: str) -> KernelModel:
        offset, penalties = (
            None if (a := self._arrays.get(name)) is None else _placed(a, device) for name in ("offset", "penalties")
        )
        points, coefficients = (_placed(self._arrays[name], device) for name in ("points", "coefficients"))
        return KernelModel(self._kernel, points, coefficients, offset, penalties)


def _placed(a: Array, device: str) -> Tensor:
    return torch.tensor(a, dtype=torch.float64, device=device)


def _array(tensor: Tensor) -> Floats:
    if not bool(tensor.isfinite().all()):
        raise DataError("the model's predictions are not finite; check the data for extreme values, or raise the ridge")
    return to_array(tensor)
