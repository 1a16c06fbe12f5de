"""Docstrings in a language of their own, in which every sentence is another one."""

from __future__ import annotations

from local.demo.tasks.modules import Docstring

WORDS = ("alpha", "beta", "gamma", "delta", "kappa", "sigma", "omega", "theta")


def _sentence(number: int) -> str:
    words = [f"{word}{number}" for word in WORDS[number % 4 :]]
    return f"The {' '.join(words)} holds for every other value."


def documented(count: int, sentences: int = 6) -> list[Docstring]:
    """Return docstrings of as many modules, each of one paragraph."""
    packages = ("numpy", "pandas")
    return [
        Docstring(
            packages[number % 2],
            f"part/m{number}.py",
            (" ".join(_sentence(sentences * number + n) for n in range(sentences)),),
        )
        for number in range(count)
    ]
