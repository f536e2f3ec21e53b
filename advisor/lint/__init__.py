"""Findings about a job and its first fault, from the manifests that create it.

Pure: objects with their line numbers go in, findings come out. Imports ``contract`` and
``advisor`` only. Source: ``docs/spec/consumers.md#2`` to 6 and 7.4.
"""
