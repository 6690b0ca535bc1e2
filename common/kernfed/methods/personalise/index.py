"""Written by `make docs`: what the room has."""

from __future__ import annotations

METHODS: tuple[str, ...] = ("personalise",)
"""Keys of its methods, as `METHODS` of `method` has them."""

STEPS: dict[str, str] = {
    "personalise.find_components": "component_messages",
    "personalise.find_centres": "component_messages",
    "personalise.find_density": "component_messages",
    "personalise.crossfit": "crossfit_messages",
    "personalise.adopt": "crossfit_messages",
    "personalise.moments": "embedding_messages",
    "personalise.share_points": "embedding_messages",
    "personalise.embed": "embedding_messages",
    "personalise.statistics": "messages",
    "personalise.factor": "messages",
    "personalise.project": "messages",
    "personalise.share": "messages",
    "personalise.solve_weights": "messages",
    "personalise.solve_model": "messages",
    "personalise.tell_weights": "messages",
    "personalise.allow_keeping": "messages",
    "personalise.evaluate": "messages",
    "personalise.newton_start": "training_messages",
    "personalise.newton_steps": "training_messages",
    "personalise.hessian_products": "training_messages",
    "personalise.keep_model": "training_messages",
    "personalise.train_networks": "training_messages",
    "personalise.score_networks": "training_messages",
    "personalise.watch_networks": "training_messages",
    "personalise.keep_network": "training_messages",
    "personalise.evaluate_networks": "training_messages",
}
"""Wire names of its steps, each with the module of its request."""

FIELDS: tuple[str, ...] = (
    "personalise.adopt:decisions.loss",
    "personalise.crossfit:decisions.loss",
    "personalise.embed:class_order",
    "personalise.embed:features.law",
    "personalise.embed:landmarks",
    "personalise.embed:unlabelled",
    "personalise.evaluate_networks:network.batch_norm",
    "personalise.evaluate_networks:num_folds",
    "personalise.evaluate_networks:own_centre",
    "personalise.evaluate_networks:own_spread",
    "personalise.evaluate_networks:own_target_centre",
    "personalise.evaluate_networks:own_target_spread",
    "personalise.hessian_products:intercept",
    "personalise.keep_model:intercept",
    "personalise.keep_network:choice",
    "personalise.keep_network:network.batch_norm",
    "personalise.keep_network:weights",
    "personalise.newton_steps:intercept",
    "personalise.score_networks:network.batch_norm",
    "personalise.share:clusterings",
    "personalise.share:directions",
    "personalise.share:num_embedded",
    "personalise.share:withheld",
    "personalise.share_points:unlabelled",
    "personalise.solve_weights:step_factor",
    "personalise.solve_weights:steps",
    "personalise.solve_weights:theorem_p",
    "personalise.solve_weights:theorem_q",
    "personalise.train_networks:held",
    "personalise.train_networks:network.batch_norm",
    "personalise.train_networks:num_folds",
    "personalise.watch_networks:network.batch_norm",
)
"""Fields of their requests that releases before may not know, as `later_fields` names them."""
