"""LP-FL (Jiang et al. 2023): few labels, cloze prompts, and soft labels for the texts that have none."""
