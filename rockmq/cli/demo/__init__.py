"""`rockmq demo`: a day in the life of a shop's orders, shortened to a minute, with a crash in it.

server      `rockmq serve` as a child process: started, killed, started again
traffic     sends the orders, starts the members, has the server killed
member      a member of the consumer group, as a child process
archive     the topic to Parquet with Spark, and back
reconcile   compares what was acknowledged, archived and consumed: plain functions over plain values
report      what is shown
"""
