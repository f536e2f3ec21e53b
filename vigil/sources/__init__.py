"""Sources of answers for the verbs: daemons, documents of a store, or a journal."""
