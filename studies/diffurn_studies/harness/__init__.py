"""Runs a study in resumable units; keeps its records, tables and figures."""
