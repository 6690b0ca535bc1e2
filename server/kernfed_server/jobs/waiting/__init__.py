"""Jobs that wait: which hold clients, and which may start."""
