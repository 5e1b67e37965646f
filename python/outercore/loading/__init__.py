"""Mini-batches of sampled neighbourhoods: seeds, rules, loaders and the sampler."""
