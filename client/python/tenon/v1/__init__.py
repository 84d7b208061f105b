"""The messages and stubs of the wire contract, generated from proto/tenon/v1 when built."""
