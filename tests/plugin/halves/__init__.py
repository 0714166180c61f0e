"""A method outside of Murmura: FedAvg on every other record of each site."""
