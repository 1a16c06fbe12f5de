from __future__ import annotations

import numpy as np

from corpus.tokens.word_ids import WordIds, WordTokens
from corpus.tokens.word_split import ALONE, INSIDE_WORD, SEPARATOR, ByteRules, Words, split_words

CLASSES = [INSIDE_WORD] * 256
for sign, kind in {" ": SEPARATOR, "\n": SEPARATOR, ".": ALONE, "-": ALONE}.items():
    CLASSES[ord(sign)] = kind
RULES = ByteRules(bytes(range(256)), b"", bytes(CLASSES))


class Spelling:
    """Tokenizes into letters, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, spelling: bytes) -> WordTokens:
        word = spelling.decode()
        self.asked.append(word)
        return WordTokens([ord(letter) for letter in word], word if len(word) > 1 else "")


def split(*pieces: str) -> Words:
    return split_words([piece.encode() for piece in pieces], RULES)


def text_of(memory: WordIds, words: Words) -> list[str]:
    numbers = memory.look_up(words)
    ids, totals = memory.ids(numbers)
    return ["".join(map(chr, part)) for part in np.split(ids, totals)[:-1]]


def test_words_and_pieces_end_where_they_should() -> None:
    words = split("one two", "", "..a-b", " x ", "end.")
    assert words.spellings(np.arange(len(words.starts))) == [
        *(b"one", b"two"),
        *(b".", b".", b"a", b"-", b"b"),
        b"x",
        *(b"end", b"."),
    ]
    assert words.piece_ends.tolist() == [2, 2, 7, 8, 10]


def test_nothing_has_no_words() -> None:
    assert split().piece_ends.tolist() == []
    assert split("", " ").piece_ends.tolist() == [0, 0]


def test_words_of_every_length_are_told_apart() -> None:
    # Each differs from the others in its length or its last letter alone.
    texts = ["x" * length + last for length in range(70) for last in "ab"]
    memory = WordIds(Spelling())
    words = split(" ".join(texts), " ".join(reversed(texts)))
    assert text_of(memory, words) == [*texts, *reversed(texts)]


def test_a_word_is_asked_for_once_unless_it_is_overlong() -> None:
    slow = Spelling()
    memory = WordIds(slow)
    short, long, overlong = "a" * 8, "b" * 32, "c" * 33
    for _ in range(3):
        assert text_of(memory, split(f"{overlong} {long} {short} {short} {overlong}")) == [
            *(overlong, long, short, short, overlong)
        ]
    assert sorted(slow.asked) == [short, long, overlong, overlong, overlong]
    assert len(memory) == 2


def test_memory_is_bounded_and_forgetting_changes_no_id() -> None:
    slow = Spelling()
    memory = WordIds(slow, max_words=50)
    draw = np.random.default_rng(0)
    for _ in range(100):
        texts = [f"w{number}" for number in draw.integers(0, 200, 20)]
        assert text_of(memory, split(*texts)) == texts
        assert len(memory) <= 50 + 20
    assert len(slow.asked) > 200


def test_new_words_are_counted() -> None:
    memory = WordIds(Spelling())
    for _ in range(2):
        numbers = memory.look_up(split("bb a bb", "cc " + "d" * 40))
        assert sorted(memory.count_new(numbers)) == [("bb", 2), ("cc", 1), ("d" * 40, 1)]
    assert memory.count_new(memory.look_up(split("a"))) == []
