"""The node daemon: configuration, journal, policy, documents, publishing."""
