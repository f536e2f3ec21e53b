"""What every scheduler of Kubernetes reads: conditions and taints of Nodes, taints of devices."""
