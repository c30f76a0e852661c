"""The one state machine: a key-value space with versions, compare-and-set, transactions, prefix lists and a watch history.

Pure: commands in (`commands`), results out (`machine`). It knows nothing of Raft, sockets or HTTP; the driver feeds it the
committed records of `__cluster_metadata-0`, in order, once each. The version of a key is the log offset of the record
that changed it last.
"""
