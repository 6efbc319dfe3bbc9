"""Pictures of plans: who runs what and when, what lives where, how busy a pipeline is."""
