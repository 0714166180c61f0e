"""DP-FedAvg (McMahan et al. 2018; Andrew et al. 2021): noise on the sum of clipped updates hides whole sites."""
