"""Files for all other packages: atomic writes, JSON with checksums, `.npy`, mapped arrays."""
