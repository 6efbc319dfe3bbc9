"""A run: places of random bits, policies by layer, the account, the report, advice, trials."""
