"""Learning which edges come next, from those that came before."""
