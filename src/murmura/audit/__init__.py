"""Attacks: what a trained adapter gives away."""
