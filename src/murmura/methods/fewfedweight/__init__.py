"""FewFedWeight (Dong et al. 2022), reconstructed: weighted pseudo data, and weights for the sites that learn well."""
