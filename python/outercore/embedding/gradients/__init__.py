"""Scores, losses, their gradients and the steps that they make."""
