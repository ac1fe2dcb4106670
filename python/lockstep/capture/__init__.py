"""Traces of other engines: `python -m lockstep.capture.llama_cpp` and `python -m lockstep.capture.transformers`.

Each runs a model through the engine itself, watches its forward pass and writes a trace that `lockstep compare` puts
beside ours. What an engine calls its values is data: one JSON file each in `names/` (docs/name-maps.md has the schema).
"""
