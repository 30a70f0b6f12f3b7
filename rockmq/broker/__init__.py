"""The broker: takes messages, keeps them, and hands them to consumers. `server` puts the parts together."""
