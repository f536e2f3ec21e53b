"""Elastic training with Volcano's real job controller and webhooks: ``make test-volcano``.

Kubelets and the scheduler are stood in for. The files are called ``real_*.py``, so that ``make
test`` does not collect them.
"""
