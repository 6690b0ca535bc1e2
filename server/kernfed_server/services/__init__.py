"""Thin gRPC servicers."""
