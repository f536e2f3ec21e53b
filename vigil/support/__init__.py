"""``vigil support``: one archive with what somebody needs who looks at a failure from afar."""
