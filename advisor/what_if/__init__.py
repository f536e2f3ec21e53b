"""A cluster with assumptions: what ``--what-if`` says, published as our daemons publish it."""
