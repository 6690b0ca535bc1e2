"""A cohort as a workflow sees it, and the messages that every method shares."""
