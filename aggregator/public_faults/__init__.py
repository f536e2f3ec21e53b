"""Public faults: reports of other programs by ConfigMap, broker and gRPC (``clusterd#4``).

plugin.py             the aggregator plugin of public faults
message_processor.py  the way of a message: judged, delayed, limited, counted
validation.py         which faults a message reports of which node, and what of it is refused
active_faults.py      the faults that hold, that ended a moment ago, and that end by time
apply_to_record.py    their effect on a node's record
statistic_view.py     statistic-fault-info
node_lookup.py        which nodes and chips there are; deleted_nodes.py: which are no more
fault_table.py        which codes and resources are accepted; fault_table_file.py: those of a file
unknown_nodes.py      reports about nodes that are not there yet
rate_limits.py        limits of messages; pending_messages.py: messages that wait
recent_texts.py       recent texts of documents, for the next leader
message_documents.py  the documents that carry messages, and which of them were applied
persisted_rows.py     the state in buckets, for the next run
status.py             outcomes of messages
values.py             reports and faults
"""
