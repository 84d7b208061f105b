"""Networks with the caller's own names for indices, and the texts that stand for them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from tenon.errors import InvalidRequest
from tenon.v1 import plan_pb2


class Network:
    """Inputs, output and sizes of a contraction.

    Attributes:
      inputs, output: the indices, as the caller names them.
      texts: the name of each index on the wire: its own text, with a number where two are alike.
    """

    def __init__(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable] | None,
                 sizes: Mapping[Hashable, int] | None = None) -> None:
        self.inputs = [tuple(names) for names in inputs]
        self.output = single_indices(self.inputs) if output is None else tuple(output)
        self._sizes = sizes
        self.texts: dict[Hashable, str] = {}
        used: set[str] = set()
        for name in (name for names in (*self.inputs, self.output) for name in names):
            if name not in self.texts:
                text = str(name)
                while not text or text in used:
                    text += f"#{len(used)}"
                used.add(text)
                self.texts[name] = text

    @property
    def names(self) -> dict[str, Hashable]:
        """The caller's name for each text."""
        return {text: name for name, text in self.texts.items()}

    def wire(self) -> plan_pb2.Network:
        """The message; sizes only as far as they were given."""
        message = plan_pb2.Network(output=[self.texts[name] for name in self.output])
        for names in self.inputs:
            message.operands.add(indices=[self.texts[name] for name in names])
        for name, size in (self._sizes or {}).items():
            if name in self.texts:
                try:
                    message.index_sizes[self.texts[name]] = size
                except (TypeError, ValueError):
                    raise InvalidRequest(f"{size!r} is no size of index {name!r}",
                                         reason="BAD_PARAMETER", field="size_dict") from None
        return message

    def sizes(self, shapes: Sequence[Sequence[int]] | None = None) -> dict[Hashable, int]:
        """The size of every index, given or from the shapes.

        Raises:
          InvalidRequest: SHAPE_MISMATCH when they disagree; UNKNOWN_INDEX when one has no size.
        """
        given = self._sizes or {}
        found = {name: int(size) for name, size in given.items() if name in self.texts}
        for number, (names, shape) in enumerate(zip(self.inputs, shapes or ())):
            if len(names) != len(shape):
                raise InvalidRequest(
                    f"operand {number} has {len(shape)} axes and {len(names)} indices",
                    reason="SHAPE_MISMATCH", field=f"operands[{number}]")
            for name, size in zip(names, shape):
                if found.setdefault(name, int(size)) != size:
                    raise InvalidRequest(f"index {name!r} is {found[name]} and {size} long",
                                         reason="SHAPE_MISMATCH", field=f"operands[{number}]")
        for name in self.texts:
            if name not in found:
                raise InvalidRequest(f"index {name!r} has no size", reason="UNKNOWN_INDEX",
                                     field="size_dict")
        return found

    def result_shape(self, sizes: Mapping[Hashable, int]) -> tuple[int, ...]:
        return tuple(sizes[name] for name in self.output)


def single_indices(inputs: Sequence[Sequence[Hashable]]) -> tuple[Hashable, ...]:
    """The indices that stand exactly once, in order of appearance: the output where none is given.

    Raises:
      InvalidRequest: an index stands more than twice, so that the caller has to say.
    """
    counts: dict[Hashable, int] = {}
    for names in inputs:
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    for name, count in counts.items():
        if count > 2:
            raise InvalidRequest(f"index {name!r} stands {count} times: the output has to be given",
                                 reason="BAD_EXPRESSION", field="output")
    return tuple(name for name, count in counts.items() if count == 1)


def parse(subscripts: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Inputs and output of an einsum text, by NumPy's rules without "...".

    Raises:
      InvalidRequest: BAD_EXPRESSION.
    """
    text = "".join(subscripts.split())
    left, arrow, right = text.partition("->")
    if not all(letter.isalpha() for letter in left.replace(",", "") + right):
        raise InvalidRequest(f"'{subscripts}' is no einsum text of letters, commas and '->'",
                             reason="BAD_EXPRESSION", field="einsum.subscripts")
    inputs = [tuple(term) for term in left.split(",")]
    if arrow:
        return inputs, tuple(right)
    letters = left.replace(",", "")
    return inputs, tuple(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
