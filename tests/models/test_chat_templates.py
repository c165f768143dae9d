"""Templates that end, and those that would not (issue 10, E7)."""

import threading

import pytest

from accredit.models import chat_templates
from accredit.models.chat_templates import (
    TemplateWithoutEnd,
    bound_template,
    rendered,
)
from tiny_models import TEMPLATE, character_tokenizer

MESSAGES = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "1 + 1?\n" * 3},
]


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        "{{ bos_token }}" + TEMPLATE,
        "{% for m in messages %}{{ loop.index0 }}{{ m.content | trim }}"
        "{% if not loop.last %}, {% endif %}{% endfor %}",
        "{% for m in messages[::-1] %}{{ m['role'] | upper }}{% endfor %}",
        "{% set n = namespace(x=0) %}{% for m in messages %}"
        "{% set n.x = n.x + 1 %}{{ n.x * 2 }}{% endfor %}",
        "{{ messages | tojson(indent=2) }}{{ messages | length }}",
        "{{ messages | map(attribute='role') | join(' / ') }}",
        "{% macro say(m) %}{{ '%s: %d' % (m.role, 3) }}{% endmacro %}"
        "{% for m in messages %}{{ say(m) }}{% if loop.first %}{% continue %}"
        "{% endif %}!{% endfor %}",
        "{% for i in range(3) %}{{ '=' * 8 ~ i }}{% endfor %}{{ 2 ** 10 }}",
        "{% generation %}{{ messages[0].content.split('.')[0] }}{% endgeneration %}",
        "{{ messages[1].content.replace('1', 'one').strip() }}"
        "{{ '{}-{}'.format(1, 2) }}",
        "{% if tools %}T{% endif %}{% if enable_thinking is defined %}"
        "{{ enable_thinking }}{% endif %}",
    ],
)
def test_a_text_is_the_one_that_transformers_renders(template):
    plain, bounded = character_tokenizer(), character_tokenizer()
    plain.chat_template = bounded.chat_template = template
    bound_template(bounded)
    for opening in (False, True):
        options = {"add_generation_prompt": opening, "enable_thinking": False}
        text = plain.apply_chat_template(MESSAGES, tokenize=False, **options)
        assert bounded.apply_chat_template(MESSAGES, tokenize=False, **options) == text
    ids = plain.apply_chat_template(MESSAGES)
    assert bounded.apply_chat_template(MESSAGES)["input_ids"] == ids["input_ids"]


DOUBLED = "{% set n = namespace(x='ab') %}{% for a in range(60) %}"


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
        "{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% endfor %}"
        "{% endfor %}",
        "{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}"
        "{% endmacro %}{{ f(60) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ ['a' * 9999] * 999999 }}",
        "{{ 10 ** 10 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        DOUBLED + "{% set n.x = n.x ~ n.x %}{% endfor %}",
        DOUBLED + "{% set n.x = n.x + n.x %}{% endfor %}",
        DOUBLED + "{% set n.x = n.x.replace('a', 'aa' * 99) %}{% endfor %}",
        "{{ range(99999) | map('center', 9999) | join }}",
        "{% set x %}{% for a in range(99999) %}{% for b in range(99999) %}abcdefgh"
        "{% endfor %}{% endfor %}{% endset %}{{ x }}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{% filter indent(width=999999999) %}a\nb{% endfilter %}",
        "{{ '\\t'.expandtabs(99999999999) }}",
    ],
)
def test_a_template_without_end_ends(template, monkeypatch):
    monkeypatch.setattr(chat_templates, "SECONDS", 0.05)
    with pytest.raises(TemplateWithoutEnd, match="a chat template must "):
        rendered(template, messages=MESSAGES)


@pytest.mark.parametrize(
    "template",
    [
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ lipsum(100000) }}",
        "{{ raise_exception('no') }}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.x.y }}",
        "{% for",
    ],
)
def test_a_template_that_fails_raises(template):
    with pytest.raises(Exception, match=r"\w"):
        rendered(template, messages=MESSAGES)


def test_the_second_prompt_does_not_wait_as_long_as_the_first(monkeypatch):
    monkeypatch.setattr(chat_templates, "SECONDS", 0.05)
    tokenizer = character_tokenizer()
    tokenizer.chat_template = (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    )
    bound_template(tokenizer)
    with pytest.raises(TemplateWithoutEnd, match="must end within"):
        tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    monkeypatch.setattr(chat_templates, "SECONDS", 1e9)
    with pytest.raises(TemplateWithoutEnd, match="must end within"):
        tokenizer.apply_chat_template(MESSAGES, tokenize=False)


def test_threads_render_side_by_side():
    found: dict[int, str] = {}

    def render(number: int) -> None:
        turns = [{"role": "user", "content": f"{number}"}]
        for _ in range(50):
            found[number] = rendered(TEMPLATE, messages=turns)

    threads = [threading.Thread(target=render, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: f"<|user|>{n}<|end|>" for n in range(4)}
