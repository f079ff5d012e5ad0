"""Oracles, tables of urns and helpers that several tests share."""
