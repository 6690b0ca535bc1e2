"""Run by Alembic: the changes go through the connection that the coordinator hands over."""

from alembic import context

from kernfed_server.keeping.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
