"""The job view: which jobs are hit by which faults, and the messages to their subscribers.

Pure: no I/O and no clock of its own. Source: ``docs/spec/clusterd.md#3.10``, 5.4 and 6.
"""
