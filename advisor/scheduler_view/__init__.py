"""What the scheduler knows of the cluster, from the documents that it reads."""
