"""What the engines of products share: jobs, operands that are not written out, panels, shapes."""
