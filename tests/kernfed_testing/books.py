"""Whose books the stores of tests are."""

from __future__ import annotations

from kernfed_server.keeping.ownership import Owner

OWNER = Owner("hearts", "ab" * 32, has_books=None)
