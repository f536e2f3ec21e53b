"""Faults of RDMA NICs and DPUs, in the documents of MindCluster's RDMA device plugin."""
