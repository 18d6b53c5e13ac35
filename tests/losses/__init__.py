"""Tests of fpl.losses."""
