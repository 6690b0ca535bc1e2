"""The daemon: its session with the coordinator, the tasks it answers, and its records."""
