"""GALA: invariance where the shortcut is stronger: tables, analyses, claims and printed figures."""
