"""A job file that stands for many jobs: its `[sweep]`, and the combinations that come of it."""
