"""Data sets, splits, augmentation and batches.

`spec`, `layout` and `splits` work without torch, so that planning and listing stay quick; `read` is the only module
that opens image files.
"""
