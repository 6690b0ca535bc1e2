"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = ("glm",)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "glm.start": "messages",
    "glm.sums": "messages",
    "glm.end": "messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = ()
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
