"""What `import kernfed` gives: jobs made in Python, simulations, and a federation from a script or a notebook."""
