"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = ("distill",)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "distill.look_up": "messages",
    "distill.keep_public": "messages",
    "distill.describe_targets": "messages",
    "distill.leave_out": "messages",
    "distill.start": "messages",
    "distill.distil": "messages",
    "distill.measure": "messages",
    "distill.keep_model": "messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = (
    "distill.distil:deregularise",
    "distill.keep_model:blend",
    "distill.keep_model:choose",
    "distill.measure:blend",
    "distill.measure:choose",
    "distill.start:free_intercept",
    "distill.start:pooled_penalty",
    "distill.start:target_mean",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
