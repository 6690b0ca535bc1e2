"""The client daemon: session, partitions, policy, steps."""
