"""α, the weight of a client's own rows against the public points."""

from __future__ import annotations

from kernfed.errors import ConfigError


def check_alpha(alpha: float) -> None:
    """Refuse weights of own rows at the ends.

    Raises:
        ConfigError: Tells what the end would mean.
    """
    if not alpha > 0.0:
        raise ConfigError(
            f"method.alpha is {alpha:g}: at 0 a client's own rows would not count, and all models would be one copy of "
            "the consensus; give a number above 0, the usual one is 1/clients"
        )
    if not alpha < 1.0:
        raise ConfigError(
            f"method.alpha is {alpha:g}: at 1 the public points would not count, which is method local; give a number "
            "below 1, the usual one is 1/clients"
        )
