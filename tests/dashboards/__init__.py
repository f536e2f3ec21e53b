"""Dashboards of Grafana: their source, their files, and queries on a real Prometheus."""
