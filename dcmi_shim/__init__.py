"""All access to hardware."""
