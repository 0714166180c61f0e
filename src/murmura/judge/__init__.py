"""Which of two models answers better, by a judge that is shown both (Zheng et al. 2023; Zhang et al. 2024)."""
