"""What the aggregator reads: documents of nodes, Nodes, Pods and PodGroups."""
