"""Who is connected, and requests to many clients."""
