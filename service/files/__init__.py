"""Files of the daemons: permissions, atomic replacement, SQLite databases."""
