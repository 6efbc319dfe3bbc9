"""What front ends share: places of random bits, policies by layer, the account of a run."""
