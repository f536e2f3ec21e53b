"""Where the verbs for people have their answers from: a daemon, or the documents of a store."""
