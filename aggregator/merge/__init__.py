"""From the documents of nodes to the entries of the cluster documents."""
