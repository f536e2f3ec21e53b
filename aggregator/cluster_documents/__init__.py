"""Documents for readers of the whole cluster: entries of nodes, divided into shards."""
