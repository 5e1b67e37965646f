"""Predictions over HTTP: the server, its client, and feature layouts made for it."""
