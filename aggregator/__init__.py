"""The cluster daemon: inputs, merge of nodes' documents, liveness, public faults, publishing."""
