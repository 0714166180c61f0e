"""Benchmarks of EleutherAI's lm-evaluation-harness (Gao et al. 2023; extra ``eval``), asked of the resident model."""
