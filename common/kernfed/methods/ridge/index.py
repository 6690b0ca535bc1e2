"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = (
    "local",
    "dkrr",
)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "ridge.masked_solve": "masked_messages",
    "newton.masked_start": "masked_messages",
    "newton.masked_gradient": "masked_messages",
    "newton.masked_step": "masked_messages",
    "newton.masked_product": "masked_messages",
    "fedavg.masked_update": "masked_messages",
    "fedprox.masked_update": "masked_messages",
    "ridge.local_solve": "messages",
    "ridge.train_locally": "messages",
    "newton.start": "messages",
    "newton.gradient": "messages",
    "newton.step": "messages",
    "newton.hessian_product": "messages",
    "newton.second_moments": "messages",
    "newton.held_out_loss": "messages",
    "fedavg.curvature": "messages",
    "fedavg.local_update": "messages",
    "fedprox.local_update": "messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = (
    "newton.gradient:energy",
    "newton.gradient:fold",
    "newton.hessian_product:fold",
    "newton.masked_gradient:inner.energy",
    "newton.masked_gradient:inner.fold",
    "newton.masked_product:inner.fold",
    "newton.masked_start:inner.fold",
    "newton.masked_step:inner.fold",
    "newton.start:fold",
    "newton.step:fold",
    "ridge.train_locally:alone",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
