from __future__ import annotations

import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.errors import UserError
from corpus.text.cleaning import Cleaner
from corpus.text.drops import DropReason
from corpus.text.languages import language_of
from pipeline_config.data_schema import CorpusConfig

TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("a b.\t\n\r\x0c\x07\x7f\x85\xa0\xad\u0301\u2028\u3000\ufb01\ufeffe"),
    )
)
FORMS = ["NFC", "NFKC", "none"]


def cleaner(**settings: Any) -> Cleaner:
    return Cleaner(CorpusConfig(**settings))


def clean(text: str, **settings: Any) -> str:
    return cleaner(**settings).clean(text)


def test_white_space_is_single_spaces() -> None:
    assert clean(" a\t\tb\r\n\n c  d \x0be\x0cf\x1cg ") == "a b c d e f g"
    assert clean("a\u00a0b\u2003\u2028c\u3000d\x85") == "a b c d"


def test_control_characters_are_removed() -> None:
    assert clean("a\x07b\x7f c\x9b\u00add\ufeff \x1b[0m") == "ab cd [0m"


def test_every_control_character_and_space_of_unicode_is_known() -> None:
    for code in range(sys.maxunicode + 1):
        sign = chr(code)
        if sign.isspace():
            assert clean(f"a{sign}b\u00e9") == "a b\u00e9", hex(code)
        elif unicodedata.category(sign) == "Cc":
            assert clean(f"a{sign}b\u00e9") == "ab\u00e9", hex(code)


def test_joiners_that_spelling_needs_are_kept() -> None:
    assert clean("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645") == (
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )


def test_unicode_is_normalised_as_wanted() -> None:
    text = "e\u0301 \ufb01 \uff21"
    assert clean(text) == "\u00e9 \ufb01 \uff21"
    assert clean(text, unicode_normalization="NFKC") == "\u00e9 fi A"
    assert clean(text, unicode_normalization="none") == text


@pytest.mark.parametrize("form", FORMS)
@given(text=TEXT)
def test_clean_text_has_single_spaces_and_nothing_more_to_clean(form: str, text: str) -> None:
    found = clean(text, unicode_normalization=form)
    assert found == " ".join(found.split())
    assert not any(unicodedata.category(sign) == "Cc" for sign in found)
    assert clean(found, unicode_normalization=form) == found
    if form != "none":
        assert unicodedata.normalize(form, found) == found  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@given(text=TEXT)
def test_lines_are_the_same_text(form: str, text: str) -> None:
    lines = cleaner(unicode_normalization=form).clean_lines(text)
    assert " ".join(lines) == clean(text, unicode_normalization=form)
    assert all(line and "\n" not in line for line in lines)


def test_short_documents_are_dropped() -> None:
    assert cleaner().unwanted("a") is None
    assert cleaner().unwanted("") is DropReason.EMPTY
    limited = cleaner(min_document_characters=5)
    assert limited.unwanted("four") is DropReason.TOO_SHORT
    assert limited.unwanted("fives") is None
    assert limited.unwanted("") is DropReason.EMPTY


ENGLISH = "The committee decided that the report should be published before the end of the year."
GERMAN = "Der Ausschuss hat beschlossen, dass der Bericht vor Jahresende erscheinen soll."
RUSSIAN = (
    "\u041e\u0442\u0447\u0451\u0442 \u0431\u0443\u0434\u0435\u0442 \u0433\u043e\u0442\u043e\u0432"
)


def test_documents_in_other_languages_are_dropped() -> None:
    english = cleaner(keep_languages=["en"])
    assert english.unwanted(ENGLISH) is None
    assert english.unwanted(GERMAN) is DropReason.OTHER_LANGUAGE
    assert english.unwanted(RUSSIAN) is DropReason.OTHER_LANGUAGE
    both = cleaner(keep_languages=["en", "de"])
    assert both.unwanted(ENGLISH) is both.unwanted(GERMAN) is None


def test_language_is_that_of_most_of_the_text_and_not_of_its_beginning() -> None:
    assert language_of("PREFACE " + ENGLISH[:30] + GERMAN * 400) == "de"
    assert language_of(ENGLISH * 5000) == "en"


def test_unknown_language_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UserError) as caught:
        cleaner(keep_languages=["en", "xx", "qq"])
    message = str(caught.value)
    assert message.startswith("corpus.keep_languages: qq, xx cannot be recognized; give some of: ")
    assert " en eo es " in message
