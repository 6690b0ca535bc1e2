"""The coordinator: services, cohort, runs, workflows."""
