"""Texts as vectors, and search among them."""
