"""The report of a job: a page without network and scripts."""
