"""Questions about programs on the machine: launches, queues, plans, one file each."""
