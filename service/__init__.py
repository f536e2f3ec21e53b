"""What both daemons stand on: pages, log, configuration files, stalls, the service manager."""
