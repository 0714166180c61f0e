"""FedIT (Zhang et al. 2024): federated instruction tuning, with the optimisers that OpenFedLLM compares."""
