"""What operations share: random bits, publication, counts, threads, the processor, files."""
