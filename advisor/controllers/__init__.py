"""What controllers of jobs do after a fault: how many replicas go on, which pods are made."""
