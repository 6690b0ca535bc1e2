"""The files of a person: a job, a client, the coordinator's facts about jobs."""
