"""What Volcano, its Ascend plugin and the controllers of workloads will do about faults.

Pure: a snapshot of a cluster, the state of the scheduler and options go in, a report comes out.
Imports ``contract`` only. Source: ``docs/spec/consumers.md#1`` to 3 and 7.
"""
