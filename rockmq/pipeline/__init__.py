"""Jobs on Spark over messages: archive, replay, redrive and others (spark spec, section 7).

Each is a function that takes the Spark session and a `Progress`, and the command `rockmq pipeline NAME`, which adds a row in
the run ledger (`rockmq.pipeline.runs`) and a display.
"""
