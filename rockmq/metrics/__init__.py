"""Figures for operators: what they are called, how they are written, and the small web server that gives them out."""
