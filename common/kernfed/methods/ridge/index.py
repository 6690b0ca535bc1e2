"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = (
    "local",
    "dkrr",
)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "ridge.local_solve": "messages",
    "ridge.masked_solve": "messages",
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
    "newton.start:fold",
    "newton.step:fold",
    "ridge.train_locally:alone",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
