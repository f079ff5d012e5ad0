"""Runs a study in resumable units and keeps records, tables, figures and pages."""
