"""The data sets of `experiments/data`, each known by where it comes from and its digest; nothing is downloaded."""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).resolve().parent / "data"

_SETS = {
    "beijing_air": (
        "UCI, Beijing multi-site air quality",
        "8c4e5a2d21785974c8d81a43867d52bb6f9fc89835e79c0d41471b1e7d044218",
    ),
    "dna": (
        "UCI, Statlog splice junctions in the form of LIBSVM's dna",
        "3b75b54afbdfc46f56a2a19dd4ec6a59278ee1a36595e5ccf91edf5b6331f2d4",
    ),
    "letter": ("UCI, letter recognition", "8d94d76cd75c6fafd00ee23e3753b2577d39249c515b590147a784ceb51a10d8"),
    "naval": (
        "UCI, condition-based maintenance of naval propulsion plants",
        "b12cc9c9ead3e016d693e6d0ed9392a26a647508c980deba88cc1134b007798b",
    ),
    "parkinsons": (
        "UCI, Parkinson's telemonitoring",
        "20f5a074424559556fb4ae5675d8fc4da2953d47365566ccdcdf983d03087933",
    ),
    "pendigits": (
        "UCI, pen-based recognition of digits",
        "55a11a53a07b09919026761922a76979ba6982c14ae335b86bd7313464285435",
    ),
    "satimage": ("UCI, Statlog Landsat satellite", "a911ee9454bbe8534b1103b2d041dc17d02acca0ebe67e19c7a0cab55e67c519"),
    "shuttle": ("UCI, Statlog shuttle", "e9d0e8404c8e582a23194d65d32e10b5aae38ea09a851112c6c8cb401a31de15"),
    "ujiindoorloc": ("UCI, UJIIndoorLoc", "17cf0fad65e852666d0627638e2ae65679b999b1315103ca0d224efb9ee3f655"),
    "usps": (
        "USPS zip codes, of The Elements of Statistical Learning",
        "11f2d3305bf0df850de1d765aa1d914e655c97664ea8d3f7ac6648f8420f1f11",
    ),
}
"""Name to source and SHA-256 of the file."""


def arrays(name: str, folder: Path = DATA) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a data set, by name.

    Ends the program with a sentence where the file is missing, cut or another one.
    """
    source, digest = _SETS[name]
    path = folder / f"{name}.npz"
    known = f"{source}, SHA-256 {digest}; `git checkout -- experiments/data` brings it back, its README says more"
    try:
        content = path.read_bytes()
    except OSError as err:
        sys.exit(f"{path}: {err.strerror or err}. It holds {known}")
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(
            f"{path}: {len(content)} bytes of SHA-256 {found}, which is another file or a damaged one. Wanted: {known}"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)
