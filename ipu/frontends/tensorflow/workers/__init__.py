"""Strategies of several workers by the vendor's names, for one worker."""
