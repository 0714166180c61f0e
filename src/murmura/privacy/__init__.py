"""Differential privacy: plans, what they cost, the mechanisms, and the ledger of what a run really did."""
