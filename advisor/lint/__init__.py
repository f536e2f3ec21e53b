"""What will become of a job at its first fault, judged from the files that make it.

Pure: objects with the lines where they stand go in, findings come out. Imports ``contract`` and
``advisor`` only. Source: ``docs/spec/consumers.md#2`` to 6 and 7.4.
"""
