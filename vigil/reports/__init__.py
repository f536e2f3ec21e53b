"""Reports for people, made from the answers of daemons or from documents."""
