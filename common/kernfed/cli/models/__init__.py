"""Commands that use a model that a job left."""
