"""The only door to hardware."""
