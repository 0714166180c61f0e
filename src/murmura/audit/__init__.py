"""The audit of a finished run: what its model, and what else was kept of it, gives away about the sites' records."""
