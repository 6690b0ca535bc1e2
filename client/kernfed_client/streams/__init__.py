"""Streams of rows for online learning."""
