"""Steps that no method owns, and the table of all steps that this client agrees to run."""
