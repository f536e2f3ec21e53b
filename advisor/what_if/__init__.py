"""A cluster with assumptions: what ``--what-if`` assumes, as our daemons publish it."""
