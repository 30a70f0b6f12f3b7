"""Which messages a consumer wants: tags here; SQL92 comes with the broker's filters."""
