"""Network links of chips."""
