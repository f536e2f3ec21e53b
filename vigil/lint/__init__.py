"""``vigil lint``: reads manifests, has them judged and prints what was found."""
