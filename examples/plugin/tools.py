from retinue import tool


@tool(effects=["read"])
def word_count(text: str) -> dict[str, int]:
    "Counts the lines, words and characters of a text."
    return {"lines": len(text.splitlines()), "words": len(text.split()), "characters": len(text)}
