"""Server, fleet, sites, and what travels between them."""
