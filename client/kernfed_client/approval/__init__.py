"""The site's say: which jobs ask to run here, what they would send, and what people decided on them."""
