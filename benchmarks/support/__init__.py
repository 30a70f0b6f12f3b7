"""Parts of the macro benchmark."""
