"""One sign for the many that are written for it. Standard library only."""

import re
import unicodedata

_SIGNS = {
    "−": "-",
    "﹣": "-",
    "∗": "*",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "÷": "/",
    "∕": "/",
    "⁄": "/",
    "≤": r"\leq ",
    "⩽": r"\leq ",
    "≥": r"\geq ",
    "⩾": r"\geq ",
    "≠": r"\neq ",
    "≈": r"\approx ",
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∖": r"\setminus ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "√": r"\radical ",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "∠": r"\angle ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℚ": r"\mathbb{Q}",
    "ℕ": r"\mathbb{N}",
    "ℂ": r"\mathbb{C}",
    "…": r"\ldots ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "→": r"\to ",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    "\u2062": "",
    "\ufeff": "",
    "\u200b": "",
}
_GREEK = {
    chr(code): f"\\{unicodedata.name(chr(code)).split()[-1].lower()} "
    for code in (*range(0x3B1, 0x3C2), *range(0x3C3, 0x3CA))
} | {"λ": r"\lambda ", "Δ": r"\Delta ", "Σ": r"\Sigma ", "Ω": r"\Omega "}
_FULL_WIDTH = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_TRANSLATION = str.maketrans({**_FULL_WIDTH, **_GREEK, **_SIGNS})
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙₖ", "0123456789+-=()nk", strict=True))
_SCRIPT = re.compile(
    f"(?P<up>[{''.join(_SUPERSCRIPTS)}]+)|(?P<down>[{''.join(_SUBSCRIPTS)}]+)"
)
_VULGAR = re.compile("[¼-¾⅐-⅞]")

SYNONYMS = {
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\cfrac": "\\frac",
    "\\dbinom": "\\binom",
    "\\tbinom": "\\binom",
    "\\leqslant": "\\leq",
    "\\le": "\\leq",
    "\\geqslant": "\\geq",
    "\\ge": "\\geq",
    "\\ne": "\\neq",
    "\\lt": "<",
    "\\gt": ">",
    "<=": "\\leq",
    ">=": "\\geq",
    "!=": "\\neq",
    "**": "^",
    "\\varnothing": "\\emptyset",
    "\\lbrace": "\\{",
    "\\rbrace": "\\}",
    "\\lbrack": "[",
    "\\rbrack": "]",
    "\\backslash": "\\setminus",
    "\\degree": "°",
    "\\colon": ":",
    "\\dots": "\\ldots",
    "\\cdots": "\\ldots",
    "\\dotsc": "\\ldots",
    "\\dotsb": "\\ldots",
    "...": "\\ldots",
    "\\thickapprox": "\\approx",
    "\\%": "%",
    "\\vert": "|",
    "\\lvert": "|",
    "\\rvert": "|",
    "\\mid": "|",
    "\\textdollar": "\\$",
    "\\euro": "€",
    "\\pounds": "£",
    "\\varepsilon": "\\epsilon",
    "\\varphi": "\\phi",
}


def written_out(text: str) -> str:
    """Fractions, scripts and signs of Unicode in LaTeX's spelling."""
    text = _SCRIPT.sub(_script, _VULGAR.sub(_vulgar, text))
    return text.translate(_TRANSLATION)


def _vulgar(sign: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", sign[0]).split("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}"


def _script(run: re.Match[str]) -> str:
    if run["up"]:
        return "^{" + "".join(_SUPERSCRIPTS[sign] for sign in run["up"]) + "}"
    return "_{" + "".join(_SUBSCRIPTS[sign] for sign in run["down"]) + "}"
