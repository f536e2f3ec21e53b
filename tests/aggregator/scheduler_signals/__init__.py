"""Tests of what every scheduler of Kubernetes reads: conditions and taints."""
