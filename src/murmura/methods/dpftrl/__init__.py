"""DP-FTRL (Kairouz et al. 2021): noise on the sums of all updates so far hides whole sites."""
