"""The name server: brokers tell it what they have, clients ask it where a topic is. It keeps nothing but KV on disk."""
