"""Optimisers that the vendor added: gradients accumulated, averaged over replicas, mapped."""
