"""Public faults: what others say of chips by ConfigMap, broker and gRPC (``clusterd#4``).

part.py       all of it together: what the daemon reads, calls, keeps and shows
hearing.py    a message on its way: judged, held, limited, counted
judging.py    what a message says of which node, and what of it is refused
ledger.py     what stands, what ended a moment ago, and what ends by time
device.py     what that does to a node's record
statistic.py  statistic-fault-info
places.py     which nodes and chips there are; away.py: which are no more
table.py      which codes and resources are taken; table_file.py: those of a file
absent.py     what documents say of nodes that are not there yet
pieces.py     long work in pieces, between which others have their turn
limits.py     how much anybody may say; waiting.py: what waits until it may be said
recent.py     what documents said a moment ago, for who leads next
documents.py  the documents that carry messages, and which of them have counted
rows.py       the state in buckets, for the next run
service.py    the way in for gRPC
status.py     what became of messages
values.py     the words of all these
"""
