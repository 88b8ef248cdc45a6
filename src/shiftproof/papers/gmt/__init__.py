"""GMT: faithful explanations: tables, analyses, claims and printed figures."""
