"""Models of the sites' own, made of the global one when all rounds are done, and what each site gains by either."""
