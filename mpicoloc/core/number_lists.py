"""Lists of numbers as options have them: levels of bubbles, processors."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

N_CPUS_MAX = 1024
"""CPU_SETSIZE of the C library."""


class LevelLists:
    """The values of ``--bubble-levels`` as a collection: levels above 0, up to 8, with commas."""

    words = "levels above 0 and up to 8, with commas, as 2,4,6,8"

    def __contains__(self, text: object) -> bool:
        return all(map(_is_level, str(text).split(",")))

    def __iter__(self) -> "Iterator[str]":
        yield self.words

    def __len__(self) -> int:
        return 1


class CpuLists:
    """The values of ``--bubble-cores`` as a collection: lists of processors."""

    words = "a list of processors, as 0-3,8"

    def __contains__(self, text: object) -> bool:
        return all(map(_is_range, str(text).split(",")))

    def __iter__(self) -> "Iterator[str]":
        yield self.words

    def __len__(self) -> int:
        return 1


def _is_range(word: str) -> bool:
    first, _, last = word.partition("-")
    last = last if "-" in word else first
    is_number = all(one.isascii() and one.isdigit() and len(one) < 6 for one in (first, last))
    return is_number and int(first) <= int(last) < N_CPUS_MAX


def _is_level(word: str) -> bool:
    try:
        return word == word.strip() and 0 < float(word) <= 8
    except ValueError:
        return False
