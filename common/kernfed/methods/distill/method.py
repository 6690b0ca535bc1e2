"""The method `distill`."""

from __future__ import annotations

from kernfed.federation.messages.base import requests_in
from kernfed.methods.base import FIXED, Method, Needs, table
from kernfed.methods.distill import messages
from kernfed.methods.distill.public_set import pack_file
from kernfed.methods.distill.settings import DistillSettings

METHODS = table(
    Method(
        DistillSettings,
        rounds=lambda s: s.rounds,
        needs=lambda _: Needs.COLUMNS,
        steps=requests_in(messages),
        asks=lambda _: (messages.DistillRequest,),
        fixed=FIXED,
        files=lambda s: (s.public,),
        pack=pack_file,
        lengthscale=lambda s: "median" if s.lengthscale == "auto" else s.lengthscale,
    )
)
