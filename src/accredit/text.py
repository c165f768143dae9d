"""Text as UTF-8 can hold it. Needs the standard library only: workers import it."""


def without_lone_surrogates(text: str) -> str:
    """Half surrogate pairs become U+FFFD; whole pairs the character they mean."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
