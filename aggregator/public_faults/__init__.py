"""Public faults: reports of other programs by ConfigMap, broker and gRPC (``clusterd#4``).

plugin.py             the aggregator plugin of public faults
message_processor.py  the way of a message: judged, delayed, limited, counted
validation.py         which faults a message reports of which nodes, and what of it is refused
kept_messages.py      documents that carry messages, which of them were applied; messages that
                      wait; reports about nodes that are not there yet
active_faults.py      the faults that hold, that ended a moment ago, and that end by time; their
                      nodes that were deleted
published_faults.py   their effect on a node's record, and statistic-fault-info
fault_table.py        which codes and resources are accepted
status.py             outcomes of messages
values.py             reports and faults, and their rows in buckets for the next run
"""
