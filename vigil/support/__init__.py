"""``vigil support``: one archive for a reader who looks at a failure from afar."""
