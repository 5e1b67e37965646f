"""Reads columns and rows of text files, Parquet files and arrays."""
