"""What changed, for subscribers, the history, the log and labels of Pods."""
