"""One model for the clients' test distributions: what both halves share."""
