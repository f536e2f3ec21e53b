"""The operator's fault configuration: files and ConfigMaps, and when they change."""
