"""Jobs as tasks of the coordinator: they wait in its queue, run, are watched, and leave their artifacts."""
