"""Configurations of the jobs: their fields, their options, sizes."""
