"""Files for all rooms: atomic writing, JSON with checksums, `.npy`, arrays larger than memory."""
