"""RockMQ: a message queue that speaks Apache RocketMQ's protocol and keeps its files."""
