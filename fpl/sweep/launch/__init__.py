"""Carry jobs out under Ray Tune: `inline` in the trial's process, `gang` and `train` on Ray Train workers."""
