"""Documents as Markdown, converted by a program of its own that can do no harm."""
