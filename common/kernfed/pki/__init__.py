"""The federation's private CA: names, keys, certificates, tokens, and the registry of what was issued and revoked."""
