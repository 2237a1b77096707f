"""DDTREE for stock SGLang: a plug-in that patches no file. Found by the entry point `plugin:load`; see README.md.

What decides (tree, walk, slots, counters, validation) imports neither sglang nor torch; `mask`, `sampling` and `ranked`
need torch; `worker`, `verify_input`, `selftest` and `plugin` are the only modules that touch sglang.
"""
