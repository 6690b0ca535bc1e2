"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = ("reweight",)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "reweight.compare_linear": "choice_messages",
    "reweight.compare_networks": "choice_messages",
    "reweight.look_up": "messages",
    "reweight.share_sample": "messages",
    "reweight.match_ratios": "messages",
    "reweight.class_prior": "messages",
    "reweight.label_ratios": "messages",
    "reweight.use_ratios": "messages",
    "reweight.gradient": "messages",
    "reweight.local_update": "messages",
    "reweight.measure": "messages",
    "reweight.keep_network": "messages",
    "reweight.point_moments": "mixture_messages",
    "reweight.fold_sums": "mixture_messages",
    "reweight.mixture_ratios": "mixture_messages",
    "reweight.mixture_classes": "mixture_messages",
    "reweight.class_counts": "mixture_messages",
    "reweight.classify": "mixture_messages",
    "reweight.describe_network": "own_network_messages",
    "reweight.spectra": "spectrum_messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = (
    "reweight.class_prior:all_or_nothing",
    "reweight.classify:map.law",
    "reweight.compare_networks:network.batch_norm",
    "reweight.compare_networks:network.name",
    "reweight.compare_networks:network.parts",
    "reweight.fold_sums:map.law",
    "reweight.gradient:network.batch_norm",
    "reweight.gradient:network.name",
    "reweight.gradient:network.parts",
    "reweight.keep_network:network.batch_norm",
    "reweight.keep_network:network.name",
    "reweight.keep_network:network.parts",
    "reweight.label_ratios:all_or_nothing",
    "reweight.label_ratios:optional",
    "reweight.local_update:network.batch_norm",
    "reweight.local_update:network.name",
    "reweight.local_update:network.parts",
    "reweight.local_update:proximal",
    "reweight.look_up:distances",
    "reweight.look_up:seed",
    "reweight.match_ratios:optional",
    "reweight.match_ratios:ratios.clip_held_out",
    "reweight.match_ratios:ratios.temper",
    "reweight.measure:network.batch_norm",
    "reweight.measure:network.name",
    "reweight.measure:network.parts",
    "reweight.mixture_ratios:map.law",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
