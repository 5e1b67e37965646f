"""Predictions over HTTP: a server in this process, and a client."""
