"""The store's tables through the releases: brought up to date when the coordinator starts.

Each file in `versions` is one change, forwards only: a store is never taken back, for a release that does not know a
table would lose what is in it. A new change is written by hand, with the next number, beside the one in `tables.py`;
tests compare what the migrations make with what `tables.py` says.
"""
