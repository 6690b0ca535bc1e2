"""Whether the matrices that a method keeps of a client's features fit into the memory that it may take."""

from __future__ import annotations

from collections.abc import Callable

from kernfed.errors import DataError
from kernfed.memory import require_bytes
from kernfed.tensors.ridge import ridge_bytes
from kernfed.tensors.rows import SMALL


class Room:
    """The claims of the clients in this process: one at a daemon, all of them in a simulation."""

    def __init__(self) -> None:
        """Begin with no claim."""
        self._claims: dict[str, int] = {}

    def claim(self, client: str, num_rows: int, num_features: int, copies: int, usable: Callable[[], int]) -> None:
        """Claim memory for a feature map before anything is computed, in place of the client's claim of before.

        Args:
            client: Who claims it.
            num_rows: Training rows n.
            num_features: Features M.
            copies: Matrices of n x M numbers that the method keeps at once; 0: it sums over blocks of rows, as ridge
                problems do, and keeps one M x M matrix, or the features of at most M/2 rows.
            usable: Bytes that there are for this client; asked for what is not small.

        Raises:
            DataError: The method's matrices cannot fit, alone or beside those of the others; states what they need,
                what there is, and what to do.
        """
        needed = 8 * num_rows * num_features * copies if copies else ridge_bytes(num_rows, num_features)
        if needed > 8 * SMALL and needed > (limit := usable()):
            kept = f"{copies} matrices of" if copies > 1 else "a matrix of" if copies else "ridge matrices for"
            raise DataError(
                f"this method keeps {kept} {num_features} features of {num_rows} training rows, about "
                f"{needed / 2**30:.2f} GiB, and {limit / 2**30:.2f} GiB may be used here; lower "
                "features.num_frequencies in the job, raise max_memory_bytes of the client file, or use a machine with "
                "more memory"
            )
        self._claims[client] = needed
        if len(self._claims) > 1 and needed > 8 * SMALL:
            require_bytes(
                sum(self._claims.values()),
                f"what {len(self._claims)} clients keep in this one process",
                "lower features.num_frequencies in the job, or simulate fewer clients",
            )
