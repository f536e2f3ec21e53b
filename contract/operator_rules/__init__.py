"""What operators write about codes and levels, decoded and checked."""
