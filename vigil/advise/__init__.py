"""What ``vigil advise`` is made of: dumps, assumptions, and what is printed."""
