"""Agreement with math-verify's published tests: `math_verify_cases.py CHECKOUT`.

Reads the test files of a checkout of https://github.com/huggingface/Math-Verify
(parsed, not run), compares every (gold, prediction, expected) with our verdict, and
exits with 1 where the two differ without a reason in `DELIBERATE`. In prose both sides
are what is announced or boxed last, else the last formula or number: finding an answer
is not what is compared here.
"""

import ast
import re
import sys
from pathlib import Path

from accredit.verification.equivalence import math_equal

_DECIMAL_COMMA = "a comma separates a list, or thousands"
_CONTRADICTION = "a chain whose sides are different numbers is no answer"
_PRECISION = "their test rounds to two digits; here one part in a million counts"
_SEARCH = "about finding an answer in prose"
DELIBERATE = {
    "1000.99 -> 1000,99": _DECIMAL_COMMA,
    "1,22 -> 1.22": _DECIMAL_COMMA,
    "2.74 -> 2,74": _DECIMAL_COMMA,
    "0,111 -> 0.111": _DECIMAL_COMMA,
    "12\\text{ and }13 -> ": _SEARCH,
    "$9$ -> $ \n 9": _SEARCH,
    "$9$ -> \\( \n 9": _SEARCH,
    "$10/9$ -> $ \\frac{1}{2} \\$": _SEARCH,
    "$x = 11$ -> $x = 5+5+1 = 7 =11$": _CONTRADICTION,
    "$x = 1/3$ -> $x = 5+5+1 = 1/3": _CONTRADICTION,
    "$1 = \\zzz": "an unknown command makes the gold answer text",
    "$z = 1 + 1 = 2$ -> $z = 3+3 = 2$": _CONTRADICTION,
    "$(\\begin{pmatrix}\\frac{1}{3}": _PRECISION,
    "$(\\frac{3}{5},\\frac{8}{3}]$ -> $(0.6,2.6667]$": _PRECISION,
    "$x \\in [-2,7]$ -> $-2 \\le x": "an inequality is its interval, whichever is gold",
    "\\boxed{W(n)": "their gold answer's box is never closed",
    "$f(x)$ -> $f(y)$": "letters keep their names",
    "$1 - \\frac{1}{\\mathrm{e}}$ -> $1 +": "1 - 1/e is not 1 + 1/e",
}
"""Start of a case's `gold -> prediction`, and why our verdict is another."""

_BOX = re.compile(r"\\boxed\s*\{")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_PROSE = re.compile(r"(?<![\\a-zA-Z])(?!and\b|pct\b|or[A-Z])[A-Za-z]{3,}")
_NO_WORDS = re.compile(r"(?:\\[a-zA-Z]+|[^a-zA-Z])*")
_NUMBER = re.compile(
    r"(?<![A-Za-z\d])-?\$?[\d.,/]*\d(?!\d|[A-Zn-z])(?:\s?(?:%|€|pct|percent|m²))?"
)


def cases(folder: Path) -> list[tuple[str, str, bool]]:
    """Gold, prediction and what math-verify expects, of every parametrized test."""
    found: list[tuple[str, str, bool]] = []
    for path in sorted(folder.glob("test_*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and "parametrize" in ast.unparse(call.func):
                found += _rows(call)
    return found


def _rows(call: ast.Call) -> list[tuple[str, str, bool]]:
    names = [name.strip() for name in ast.literal_eval(call.args[0]).split(",")]
    rows = call.args[1]
    if not isinstance(rows, ast.List) or names[:2] != ["gold", "pred"]:
        return []
    verdict = names.index("expected" if "expected" in names else "result")
    found = []
    for row in rows.elts:
        try:
            values = ast.literal_eval(row)
        except ValueError:
            continue  # one row is computed by a call
        found.append((values[0], values[1], bool(values[verdict])))
    return found


def answer_in(text: str) -> str:
    """What is announced or boxed last, else what stands last in prose."""
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)  # raw strings, escaped twice
    *before, announced = re.split(r"(?i)final answer is:?|answer:?\s(?=[$\\])", text)
    boxes = _boxes(announced) or (not before and _boxes(text))
    if boxes:
        return ", ".join(dict.fromkeys(boxes))
    if not _PROSE.search(_FORMULA.sub("", text)):
        return text
    formulas = list(_FORMULA.finditer(announced))
    if formulas and before:
        return formulas[0][0]
    masked = _FORMULA.sub(lambda formula: " " * len(formula[0]), announced)
    found = [*formulas, *_NUMBER.finditer(masked)]
    return max(found, key=lambda match: match.end())[0] if found else text


def _boxes(text: str) -> list[str]:
    """The contents of the last boxes that only `and`, commas and the like divide."""
    group: list[str] = []
    end = 0
    for opening in _BOX.finditer(text):
        depth = 1
        for place in range(opening.end(), len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                between = text[end : opening.start()]
                if not (re.search(r"\band\b", between) or _NO_WORDS.fullmatch(between)):
                    group = []
                group.append(text[opening.end() : place])
                end = place + 1
                break
    return group


def main() -> int:
    """Prints the agreement and every case without it."""
    folder = Path(sys.argv[1])
    all_cases = cases(folder / "tests" if (folder / "tests").is_dir() else folder)
    unexplained = explained = 0
    for gold, prediction, expected in all_cases:
        read = (answer_in(gold), answer_in(prediction))
        comparison = math_equal(*read)
        if comparison.equal is expected:
            continue
        shown = f"{read[0]} -> {read[1]}"
        reason = next((DELIBERATE[k] for k in DELIBERATE if shown.startswith(k)), "")
        explained += bool(reason)
        unexplained += not reason
        print(f"{shown!r}: expected {int(expected)}, {reason or comparison}")
    agreed = len(all_cases) - explained - unexplained
    print(f"{agreed} of {len(all_cases)} agree, {explained} differ with a reason")
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
