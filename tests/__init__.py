"""Tests mirror the packages; `tiers` says how much of each runs, `vectors` where files lie."""
