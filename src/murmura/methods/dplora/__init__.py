"""DP-LoRA (Liu et al. 2023): clipped and noised adapter gradients, few bytes; and what it is compared with."""
