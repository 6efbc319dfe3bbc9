"""The folder that poprun puts on PYTHONPATH, so that any Python imports `popdist`."""
