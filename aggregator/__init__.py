"""The cluster daemon: intake, merge pipeline, sharding, publishing."""
