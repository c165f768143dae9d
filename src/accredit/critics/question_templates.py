"""Texts of the built-in questions to a prompted critic. Loads nothing."""

COMPACT = {
    "question": "?{left}",
    "question_with_reference": "?{left}={reference}",
    "stem": "v",
}
"""How much success the packaged model was taught to see in an attempt."""

COMPACT_PROGRESS = {
    "question": "%{left}",
    "question_with_reference": "%{left}={reference}",
    "stem": "v",
}
"""How much progress it was taught to see there."""

INSTRUCTION = {
    "question": """\
Stop here and judge the attempt above, which may be unfinished. Suppose that its \
author simply continues it to the end, with at most {left} more tokens to write. How \
much credit should we expect the finished attempt to earn?

Credit is a number between 0 and 1: 0 means no credit, 1 means full credit, and \
anything in between means partial credit. It is the grader's mark for what is handed \
in, averaged over the ways in which the attempt may go on. It is not the probability \
that everything in it is right. An attempt that will not be done within its remaining \
{left} tokens earns only what it holds by then.

Answer with one line and nothing else:
Expected credit: <a number from 0.0 to 1.0 with one decimal>""",
    "question_with_reference": """\
Stop here and judge the attempt above, which may be unfinished. Suppose that its \
author simply continues it to the end, with at most {left} more tokens to write. How \
much credit should we expect the finished attempt to earn?

For your judgement only, here is a reference solution that the grader accepted. The \
author of the attempt has not seen it, and a different route can be worth as much.

--- Reference solution ---
{reference}
--- End of the reference solution ---

Credit is a number between 0 and 1: 0 means no credit, 1 means full credit, and \
anything in between means partial credit. It is the grader's mark for what is handed \
in, averaged over the ways in which the attempt may go on. It is not the probability \
that everything in it is right. An attempt that will not be done within its remaining \
{left} tokens earns only what it holds by then.

Answer with one line and nothing else:
Expected credit: <a number from 0.0 to 1.0 with one decimal>""",
    "stem": "<think>\n\n</think>\n\nExpected credit: ",
    "thinking_close": "\n</think>\n",
}
"""In words, for chat models that may think before they answer."""

BUILT_IN = {
    "compact": COMPACT,
    "compact_progress": COMPACT_PROGRESS,
    "instruction": INSTRUCTION,
}
