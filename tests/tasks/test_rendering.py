"""Problems to ids and completions to text."""

import pytest

from accredit.tasks.rendering import (
    DoesNotFit,
    decode_completion,
    decode_completions,
    decoder,
    render,
    render_all,
    shown_prompt_ids,
)
from accredit.types import Message, Problem


def problem(text: str = "1+1?", name: str = "p", system: str = "") -> Problem:
    opening = (Message("system", system),) if system else ()
    return Problem(name, (*opening, Message("user", text)))


def test_a_template_renders_with_the_opening_of_the_answer(make_tokenizer, template):
    tokenizer = make_tokenizer(template)
    prompt = render(problem("1+1?"), tokenizer)
    text = "<bos><user>1+1?<assistant>"
    assert tokenizer.decode(prompt.token_ids) == text
    assert len(prompt.token_ids) == 7
    turns = [{"role": "user", "content": "1+1?"}]
    straight = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_dict=False
    )
    assert list(prompt.token_ids) == straight


@pytest.mark.parametrize("around", ["$A", "<bos> $A", "<bos> $A <eos>"])
@pytest.mark.parametrize("writes_bos", [True, False])
def test_b084_b085_there_is_exactly_one_bos(
    make_tokenizer, template, around, writes_bos
):
    """Cases B084, B085: never two, and never lost where the tokenizer puts one.

    What a user's text spells of it is text.
    """
    chat_template = template if writes_bos else template.removeprefix("<bos>")
    tokenizer = make_tokenizer(chat_template, around)
    expected = 1 if writes_bos or "<bos>" in around else 0
    rendered = render(problem("ab"), tokenizer).token_ids
    assert rendered.count(tokenizer.bos_token_id) == expected
    assert tokenizer.eos_token_id not in rendered
    plain = render(problem("ab"), tokenizer, chat="plain").token_ids
    assert plain.count(tokenizer.bos_token_id) == int("<bos>" in around)
    assert plain[-2:] == tuple(tokenizer.convert_tokens_to_ids(["a", "b"]))
    again = render(problem("<bos>ab"), tokenizer, chat="plain").token_ids
    assert again.count(tokenizer.bos_token_id) == int("<bos>" in around)


def test_a_model_without_a_template_gets_plain_text(make_tokenizer):
    tokenizer = make_tokenizer()
    prompt = render(problem("1+1?"), tokenizer)
    assert tokenizer.decode(prompt.token_ids) == "1+1?"
    with_system = render(problem("1+1?", system="abc"), tokenizer)
    assert tokenizer.decode(with_system.token_ids) == "abc\n\n1+1?"
    with pytest.raises(ValueError, match="needs a tokenizer with a chat template"):
        render(problem(), tokenizer, chat="template")


def test_a_system_prompt_opens_the_conversation_unless_there_is_one(
    make_tokenizer, template
):
    tokenizer = make_tokenizer(template)
    added = render(problem("b"), tokenizer, system="a")
    assert tokenizer.decode(added.token_ids) == "<bos><system>a<user>b<assistant>"
    own = render(problem("b", system="c"), tokenizer, system="a")
    assert tokenizer.decode(own.token_ids) == "<bos><system>c<user>b<assistant>"


def test_b162_b163_b164_long_prompts_are_dropped_by_the_ids_that_are_sent(
    make_tokenizer, template
):
    """Cases B162, B163, B164: limit 10; the template adds 3 tokens to the text."""
    tokenizer = make_tokenizer(template)
    fits, long, short = "abcdefg", "abcdefgh", "abc"
    problems = [problem(fits, "0"), problem(long, "1"), problem(short, "2")]
    prompts, dropped, num_unknown = render_all(problems, tokenizer, 10)
    assert [prompt.problem.id for prompt in prompts] == ["0", "2"]
    assert [len(prompt.token_ids) for prompt in prompts] == [10, 6]
    assert dropped == {"1": "11 tokens, limit 10"}
    assert num_unknown == 0
    assert prompts[0] == render(problems[0], tokenizer)
    assert len(tokenizer(long)["input_ids"]) <= 10


def test_no_prompt_left_is_an_error(make_tokenizer):
    with pytest.raises(ValueError, match=r"'p': 4 tokens, limit 3.*max_prompt_tokens"):
        render_all([problem("1+1?")], make_tokenizer(), 3)
    with pytest.raises(ValueError, match="there are no problems"):
        render_all([], make_tokenizer(), 3)
    with pytest.raises(ValueError, match="max_prompt_tokens must be >= 1, got 0"):
        render_all([problem()], make_tokenizer(), 0)


def test_messages_that_the_template_refuses_are_dropped_alone(make_tokenizer, template):
    refusal = (
        "{% if messages[0].role == 'system' %}"
        "{{ raise_exception('no system role') }}{% endif %}"
    )
    tokenizer = make_tokenizer(refusal + template)
    problems = [problem("a", "0", system="s"), problem("b", "1")]
    prompts, dropped, _ = render_all(problems, tokenizer, 10)
    assert [prompt.problem.id for prompt in prompts] == ["1"]
    assert "no system role" in dropped["0"]
    with pytest.raises(DoesNotFit, match=r"problem '0'.*no system role"):
        render(problems[0], tokenizer)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("{{ 1 // 0 }}", "division"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
        ("{{ [1].index(2) }}", "list"),
        ("{{ messages[0].content.encode('utf-9') }}", "unknown encoding"),
    ],
)
def test_a_template_that_fails_in_any_way_refuses(
    make_tokenizer, template, fault, words
):
    """For one problem, and for that alone."""
    asks = "{% if messages[0].content == 'a' %}" + fault + "{% endif %}"
    tokenizer = make_tokenizer(asks + template)
    prompts, dropped, _ = render_all(
        [problem("a", "0"), problem("b", "1")], tokenizer, 10
    )
    assert [prompt.problem.id for prompt in prompts] == ["1"]
    assert words in dropped["0"]
    assert "\n" not in dropped["0"]
    with pytest.raises(DoesNotFit, match=rf"problem '0'.*refuses it: .*{words}"):
        render(problem("a", "0"), tokenizer)


def test_text_without_a_token_is_dropped_and_unknown_text_is_counted(make_tokenizer):
    tokenizer = make_tokenizer()
    prompts, _, num_unknown = render_all(
        [problem("abc", "0"), problem("Ω", "1")], tokenizer, 10
    )
    assert len(prompts) == 2
    assert num_unknown == 1
    opening = make_tokenizer(around="<bos> $A")
    opening.unk_token = "<bos>"
    assert render_all([problem("abc")], opening, 10).num_unknown == 0
    with pytest.raises(DoesNotFit, match="finds no token in it"):
        render(Problem("e", (Message("user", ""),)), opening)


def test_a_stop_token_is_taken_off_the_end_only(make_tokenizer):
    tokenizer = make_tokenizer()
    a, b, c = tokenizer.convert_tokens_to_ids(["a", "b", "c"])
    assert decode_completion(tokenizer, [a, b, c], {c}) == "ab"
    assert decode_completion(tokenizer, [a, c, b], {c}) == "acb"
    assert decode_completion(tokenizer, [a, c, c], {c}) == "ac"
    assert decode_completion(tokenizer, [a, b, 2], {2}) == "ab"
    assert decode_completion(tokenizer, [a, 2, b, 4], set()) == "ab"
    assert decode_completion(tokenizer, [c], {c}) == ""
    assert decode_completion(tokenizer, [], {c}) == ""


def test_many_completions_decode_as_one_by_one(make_tokenizer):
    tokenizer = make_tokenizer()
    texts = ["abc", "1 + 1 ? ", "", "a\n b"]
    spans = [[*tokenizer(text)["input_ids"], 2] for text in texts]
    assert decode_completions(tokenizer, spans, [2]) == texts
    assert decoder(tokenizer, [2])(spans) == texts
    assert decode_completions(tokenizer, [], [2]) == []


def test_b079_ids_that_no_text_encodes_to_are_decoded_and_kept(make_tokenizer):
    """Case B079: decoding is for verifiers; nothing here encodes a completion."""
    tokenizer = make_tokenizer()
    beyond_the_vocabulary = 10_000
    ids = [*tokenizer("ab")["input_ids"], beyond_the_vocabulary]
    assert decode_completion(tokenizer, ids, set()) == "ab"


def test_b168_surrogates_from_a_tokenizer_are_replaced(make_tokenizer):
    """Case B168 at the boundary where a policy's text begins."""
    tokenizer = make_tokenizer()

    class Surrogates:
        def batch_decode(self, spans, **options):
            return ["a\ud835b" for _ in spans]

    assert decode_completion(Surrogates(), [1], set()) == "a\ufffdb"
    assert decode_completion(tokenizer, [], set()) == ""


def test_thousands_of_problems_render_in_batches(make_tokenizer, template):
    tokenizer = make_tokenizer(template)
    problems = [problem(f"{i}+1?", str(i)) for i in range(3000)]
    prompts = render_all(problems, tokenizer, 20).prompts
    assert len(prompts) == 3000
    assert tokenizer.decode(prompts[2999].token_ids).endswith("2999+1?<assistant>")


def test_a_shown_prompt_says_the_template_in_place_of_the_last_user_message(
    make_tokenizer, template
):
    tokenizer = make_tokenizer(template)
    asked = Problem("p", (Message("system", "s"), Message("user", "1+1?")), "2")
    prompt = render(asked, tokenizer)
    ids = shown_prompt_ids("{prompt} is {answer}", prompt, tokenizer=tokenizer)
    whole = tokenizer.decode(ids)
    assert whole == tokenizer.decode(prompt.token_ids).replace("1+1?", "1+1? is 2")
    same = shown_prompt_ids("{prompt}", prompt, tokenizer=tokenizer)
    assert same == prompt.token_ids


def test_what_a_template_shows_is_not_read_as_a_template(make_tokenizer):
    """A problem that writes {answer} is not told it, and braces are but braces."""
    tokenizer = make_tokenizer(None)
    asked = Problem("p", (Message("user", "{answer} {0} }{"),), "7")
    prompt = render(asked, tokenizer)
    ids = shown_prompt_ids("{prompt}={x}", prompt, tokenizer=tokenizer)
    assert list(ids) == tokenizer("{answer} {0} }{={x}").input_ids


def test_a_problem_without_an_answer_cannot_be_shown_with_it(make_tokenizer):
    tokenizer = make_tokenizer(None)
    prompt = render(problem("ab"), tokenizer)
    shown = shown_prompt_ids("{prompt}b", prompt, tokenizer=tokenizer)
    assert tokenizer.decode(shown) == "abb"
    with pytest.raises(DoesNotFit, match=r"'p' must have an answer to be shown"):
        shown_prompt_ids("{prompt} {answer}", prompt, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("text", "sampled", "clean"),
    [
        ("<system>a<user>b<eos>", "<system>a<user>b", "ab"),
        ("ab<eos>", "ab", "ab"),
        ("a<eos>b<eos>", "ab", "ab"),
        ("<bos>ab", "<bos>ab", "ab"),
        ("a<user>", "a<user>", "a"),
        ("<eos>", "", ""),
        ("", "", ""),
    ],
)
def test_a_reward_reads_what_was_sampled_but_for_its_end(
    make_tokenizer, text, sampled, clean
):
    """Tags that a tokenizer calls special are part of an answer."""
    tokenizer = make_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    stops = [tokenizer.eos_token_id]
    assert decode_completion(tokenizer, ids, stops, "sampled") == sampled
    assert decode_completion(tokenizer, ids, stops, "clean") == clean
    assert decoder(tokenizer, stops, "sampled")([ids, ids]) == [sampled] * 2
