"""Public records that the server chooses for each site, beside any method.

FedDCA (Wang et al. 2024, arXiv 2409.20135), and what it is compared with.
"""
