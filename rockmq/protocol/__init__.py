"""The wire as data: codes, declared headers and bodies, the message model. Bytes in, values out; no IO."""
