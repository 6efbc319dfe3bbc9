"""Programs on several simulated IPUs: plans, schedules, orders of cross-replica sums, accounts."""
