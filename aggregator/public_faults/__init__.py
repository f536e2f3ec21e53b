"""Public faults: reports of other programs by ConfigMap, broker and gRPC (``clusterd#4``).

plugin.py             the aggregator plugin of public faults
message_processor.py  the way of a message: judged, delayed, limited, counted
message_reader.py     which faults a message reports of which nodes, and what of it is refused
node_ownership.py     what belongs to a document of one node
validation.py         whether the nodes and chips of a report exist; the reply to a sender
active_faults.py      the faults that hold, that ended a moment ago, and that end by time
apply_to_record.py    their effect on a node's record
statistic_view.py     statistic-fault-info
deleted_nodes.py      nodes that do not exist any more
fault_table.py        which codes and resources are accepted
unknown_nodes.py      reports about nodes that are not there yet
rate_limits.py        limits of messages; pending_messages.py: messages that wait
message_documents.py  the documents that carry messages, which of them were applied, recent texts
persisted_rows.py     the state in buckets, for the next run
status.py             outcomes of messages
values.py             reports, faults, and which nodes and chips there are
"""
