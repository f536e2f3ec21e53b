"""Services of all daemons: pages, log, configuration files, stalls, the service manager."""
