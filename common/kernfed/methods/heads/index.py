"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = (
    "newton",
    "fedavg",
    "fedprox",
    "fedsophia",
    "fednew",
)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "head.open": "messages",
    "head.gradient": "messages",
    "head.newton_step": "messages",
    "head.losses": "messages",
    "head.descent": "messages",
    "head.warm_up": "messages",
    "head.sophia": "messages",
    "head.direction": "messages",
    "head.evaluate": "messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = (
    "head.evaluate:choose_ridge",
    "head.evaluate:local_shared",
    "head.open:free_bias",
    "head.sophia:target_deviation",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
