"""Tests of the job view."""
