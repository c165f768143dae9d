"""The texts of a question: what a file of them must be, and what is said otherwise."""

from pathlib import Path

import pytest

from accredit.critics.prompted.questions import template_named
from accredit.critics.prompted.templates import QuestionTemplate

TOML = (
    'question = "?{left}"\nquestion_with_reference = "{left} {reference}"\nstem = "v"'
)


def test_a_template_may_be_a_file(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(TOML + '\nanswer_format = "{:.2f}"')
    assert template_named(str(file)) == QuestionTemplate(
        "?{left}", "{left} {reference}", "v", "", "{:.2f}"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TOML + "\nstemm = 'v'", "got 'stemm'; did you mean 'stem'"),
        (TOML.replace("stem", "# stem"), "must hold the key 'stem'"),
        (TOML.replace('"v"', "3"), "stem in .* must be text, got 3"),
        ("question = ", "must be a TOML file, got"),
        (TOML.replace("?{left}", "?"), r"question of a template must hold \{left\}"),
        (TOML.replace(" {reference}", ""), r"question_with_reference of a template"),
        (TOML.replace("?{left}", "?{left}{reference}"), "sees a reference in the sec"),
        (TOML + "\nanswer_format = '{!r}'", "must be that of one number"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, content: str, message: str):
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        template_named(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = " + b"[" * 20_000 + b"]" * 20_000, "nested too deep"),
        (b"a = " + b"9" * 20_000, "Exceeds the limit"),
        (b"stem = " + b"9" * 4_000, "stem in .* must be text, got 9{60}; quote it"),
        (b"a = '\xff'", "codec can't decode byte 0xff"),
        (b"k" * 60_000 + b" = 1", "got 'k{60}'"),
        (b"#" * 65_537, "of at most 64 KiB, got .*, which has 65537 bytes"),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(
    tmp_path: Path, content: bytes, message: str
):
    file = tmp_path / "mine.toml"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        template_named(str(file))
    said = str(caught.value)
    assert str(file) in said
    assert "\n" not in said
    assert len(said) < 400 + len(str(file))


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"#" * 3_000_000)

    def read(path: Path) -> bytes:
        pytest.fail(f"{path} was read")

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(ValueError, match="which has 3000000 bytes"):
        template_named(str(file))


def test_what_is_no_file_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=f"got '{tmp_path}', which is a directory"):
        template_named(str(tmp_path))
    with pytest.raises(
        ValueError, match=r"got 'n{300}', which cannot be read \(File n"
    ):
        template_named("n" * 300)
    with pytest.raises(ValueError, match=r"got 'a\\x00b', which is no name of a file"):
        template_named("a\0b")
    with pytest.raises(ValueError, match="got '/dev/null', which is no plain file"):
        template_named("/dev/null")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    assert template_named(str(file)).question == "?{left}"


def test_what_is_wrong_in_a_file_is_said_with_its_name(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(TOML.replace('"v"', '""'))
    with pytest.raises(ValueError, match=f"^{file}: stem of a template must be"):
        template_named(str(file))


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"got 'compcat'.*did you mean 'compact'"):
        template_named("compcat")
    with pytest.raises(ValueError, match=r"64 KiB, got 'a/b.toml', which does not"):
        template_named("a/b.toml")


@pytest.mark.parametrize("stem", ["", "{left}v", "v{reference}"])
def test_a_stem_is_a_text_without_placeholders(stem: str):
    with pytest.raises(ValueError, match=r"stem of a template must be a text without"):
        QuestionTemplate("{left}", "{left}{reference}", stem)
