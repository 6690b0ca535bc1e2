"""One model for the clients' test distributions: the coordinator's half."""
