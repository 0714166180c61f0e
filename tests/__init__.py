import gc

gc.set_threshold(50_000, 20, 20)  # before the rest is imported: much is made then, and hardly any of it goes
