"""One model for the clients' test distributions: the client's half."""
