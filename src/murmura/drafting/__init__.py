"""New records that a model writes after a site's own, at the site."""
