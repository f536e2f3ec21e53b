"""What made a job, and which controller makes its pods again (``docs/spec/consumers.md#2.9``)."""
