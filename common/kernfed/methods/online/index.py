"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = (
    "online",
    "ofskl",
    "ofmkl-avg",
    "vm-kofl",
    "em-kofl",
    "perfedavg",
)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "online.hindsight": "hindsight_messages",
    "online.ranges": "messages",
    "online.open": "messages",
    "online.draw_dictionary": "messages",
    "online.step": "messages",
    "online.shared_step": "messages",
    "online.local_step": "messages",
    "online.metrics": "messages",
    "online.meta_step": "meta_messages",
    "online.pooled_step": "pooled_messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = (
    "online.draw_dictionary:bounded",
    "online.draw_dictionary:gradual",
    "online.draw_dictionary:own_frequencies",
    "online.draw_dictionary:pooled",
    "online.local_step:uncounted_from",
    "online.meta_step:uncounted_from",
    "online.open:former",
    "online.open:outlier_spans",
    "online.pooled_step:uncounted_from",
    "online.shared_step:uncounted_from",
    "online.step:uncounted_from",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
