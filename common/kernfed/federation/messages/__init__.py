"""Typed messages between coordinator and clients, as frozen dataclasses; `kernfed.wire.codec` maps them to protobuf."""
