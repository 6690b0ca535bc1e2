"""What a site does in secure sums: whom it believes, what it tells once, its seats."""
