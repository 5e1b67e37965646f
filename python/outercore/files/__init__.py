"""Files of any room: atomic writing, JSON with checksums, `.npy`, arrays larger than memory."""
