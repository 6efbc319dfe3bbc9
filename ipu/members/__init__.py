"""Trainings on several processes and machines: transports carry codes, devices add."""
