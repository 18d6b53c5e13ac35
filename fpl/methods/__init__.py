"""Training methods: a package each, and the tools that they share.

`NAME/options.py` is the `[method]` table of a method, with all that others ask of it, and loads without torch;
`NAME/method.py` is what trains. A package of this kind anywhere else becomes a method by an entry point of the group
`fpl.methods` (see `fpl.config.registry`). Nothing outside a method's package knows it by name.
"""
