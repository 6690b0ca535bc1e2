"""How wide intervals are, without numpy: for whoever tells of them, and for whoever computes them."""

from typing import Final

Z: Final = 1.959963984540054
"""Standard errors to each side of a 95 % interval, beyond which a difference is told of as one."""
