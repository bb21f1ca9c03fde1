"""Plugins: packages and folders that bring agents, skills, hooks, tools and servers."""
