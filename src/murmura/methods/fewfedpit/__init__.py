"""FewFedPIT (Zhang et al. 2024, arXiv 2403.06131) and its ablations: synthetic examples, two branches, a β-mix."""
