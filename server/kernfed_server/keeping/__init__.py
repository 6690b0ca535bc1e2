"""All that the coordinator writes down."""
