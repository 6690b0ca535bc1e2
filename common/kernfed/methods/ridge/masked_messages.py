"""Steps on the random-feature ridge model whose answers are the clients' terms of secure sums."""

from __future__ import annotations

from dataclasses import dataclass

from kernfed.federation.messages.sums import MaskedRequest
from kernfed.methods.ridge.messages import (
    GradientDescentRequest,
    GradientRequest,
    HessianProductRequest,
    LocalSolveRequest,
    NewtonStartRequest,
    NewtonStepRequest,
    ProximalSolveRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSolveRequest(MaskedRequest):
    """The client's own ridge solution, as its term of a secure sum."""

    step = "ridge.masked_solve"
    kinds = LocalSolveRequest.kinds
    asks = LocalSolveRequest
    summed = ("weights",)

    inner: LocalSolveRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedStartRequest(MaskedRequest):
    """The local solution and the moment c_j, as the client's terms of a secure sum."""

    step = "newton.masked_start"
    kinds = NewtonStartRequest.kinds
    asks = NewtonStartRequest
    summed = ("weights", "moment")

    inner: NewtonStartRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedGradientRequest(MaskedRequest):
    """Local gradient at W, and tr W'H_j W where it is asked for, as the client's term of a secure sum."""

    step = "newton.masked_gradient"
    kinds = GradientRequest.kinds
    asks = GradientRequest
    summed = ("gradient", "energy")

    inner: GradientRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedStepRequest(MaskedRequest):
    """Local Hessian solve on the global gradient, as the client's term of a secure sum."""

    step = "newton.masked_step"
    kinds = NewtonStepRequest.kinds
    asks = NewtonStepRequest
    summed = ("newton_step",)

    inner: NewtonStepRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedProductRequest(MaskedRequest):
    """Local Hessian times a direction, as the client's term of a secure sum."""

    step = "newton.masked_product"
    kinds = HessianProductRequest.kinds
    asks = HessianProductRequest
    summed = ("product",)

    inner: HessianProductRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedDescentRequest(MaskedRequest):
    """FedAvg's local steps, where they led as the client's term of a secure sum."""

    step = "fedavg.masked_update"
    kinds = GradientDescentRequest.kinds
    asks = GradientDescentRequest
    summed = ("weights",)

    inner: GradientDescentRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedProximalRequest(MaskedRequest):
    """FedProx's local problem, its solution as the client's term of a secure sum."""

    step = "fedprox.masked_update"
    kinds = ProximalSolveRequest.kinds
    asks = ProximalSolveRequest
    summed = ("weights",)

    inner: ProximalSolveRequest
