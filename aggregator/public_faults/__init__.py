"""Public faults: what others say of chips by ConfigMap, broker and gRPC (``clusterd#4``).

plugin.py             all of it together: what the daemon reads, calls, keeps and shows
message_processor.py  a message on its way: judged, held, limited, counted
validation.py         what a message says of which node, and what of it is refused
active_faults.py      what stands, what ended a moment ago, and what ends by time
apply_to_record.py    what that does to a node's record
statistic_view.py     statistic-fault-info
node_lookup.py        which nodes and chips there are; deleted_nodes.py: which are no more
fault_table.py        which codes and resources are taken; fault_table_file.py: those of a file
unknown_nodes.py      what documents say of nodes that are not there yet
rate_limits.py        how much anybody may say; pending_messages.py: what waits until it may be said
recent_texts.py       what documents said a moment ago, for who leads next
message_documents.py  the documents that carry messages, and which of them have counted
persisted_rows.py     the state in buckets, for the next run
grpc_entry.py         the way in for gRPC
status.py             what became of messages
values.py             the words of all these
"""
