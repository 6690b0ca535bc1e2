"""The coordinator's own certificate, renewed with the CA's key; grpc takes it up at the next handshake."""

from __future__ import annotations

import asyncio

from kernfed.pki.federation import FederationPki
from kernfed.pki.identity import Identity
from kernfed.pki.renewal import keep_renewed


async def keep_own_certificate_renewed(pki: FederationPki) -> None:
    """Renew the coordinator's certificate at two thirds of its life, for ever; warn when that fails."""

    async def renew_once(identity: Identity) -> None:
        await asyncio.to_thread(pki.renew_folder, identity.folder)

    await keep_renewed(pki.coordinator_folder, renew_once)
