"""JSON bodies, by subject. A field's default is what Java leaves out or assumes."""
