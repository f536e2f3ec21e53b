"""The chains of ``docs/spec/clusterd.md#3.1``: from a node's report to what is published of it.

::

    chains.py                     the order: process_device, process_switch, process_node; the
                                  engine around them: due times, withheld faults
      custom_filter.py            faults that a job tolerates for a while (clusterd#3.3)
      uce_accompany.py            faults that only come along with a UCE fault (clusterd#3.4)
      record_edits.py             adding and removing faults, with the lists of chips that
                                  follow from them (clusterd#2.3); separated chips (clusterd#3.9)
    state_types.py                the state of a node between steps
    frequent_fault_separation.py  which faults count, when they come too often, and the release
                                  of chips that are separated by that (clusterd#3.9)
    separation_documents.py       clusterd-config-cm and clusterd-manual-info-cm (clusterd#2.7)
    state.py                      the persistent state, and the takeover from an earlier leader

Pre-separation (clusterd#3.8) is decided in ``contract``. Retry, recover-in-place and stress test
(clusterd#3.5 to 3.7) are services to the processes of a training job, and not done here.
"""
