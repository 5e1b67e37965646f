"""Scores, losses, gradients and optimiser steps."""
