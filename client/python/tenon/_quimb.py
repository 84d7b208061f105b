"""quimb's tensor networks, as operands of a contraction."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tenon import _optional
from tenon._networks import Network

# What quimb takes for a rounding error in the imaginary part of a number.
_IMAGINARY_TOLERANCE = 1e-12


def is_network(value: Any) -> bool:
    """Whether it is a quimb TensorNetwork; nothing is imported to find out."""
    return hasattr(value, "tensor_map") and hasattr(value, "exponent")


class NetworkCall:
    """The contraction of a whole network, with the results of ``tn.contract``.

    Args:
      output_inds: the indices of the result; needed where an index stands on three tensors or more.
      options: ``preserve_tensor``, ``drop_tags`` and ``strip_exponent`` are taken out.
    """

    def __init__(self, tn: Any, output_inds: Sequence[Hashable] | None,
                 options: dict[str, Any]) -> None:
        self._tensors = list(tn.tensor_map.values())
        self._exponent = float(tn.exponent)
        self._preserve_tensor = options.pop("preserve_tensor", False)
        self._drop_tags = options.pop("drop_tags", False)
        self._strip_exponent = options.get("strip_exponent", False)
        self.network = Network([tensor.inds for tensor in self._tensors], output_inds)
        self.arrays = [tensor.data for tensor in self._tensors]

    def finish(self, value: Any) -> Any:
        """A number or a ``Tensor``; with ``strip_exponent`` a pair of it and log10 of the scale."""
        exponent = self._exponent
        if self._strip_exponent:
            value, scale = value
            return self._wrap(value), scale + exponent
        return self._wrap(value * 10**exponent if exponent else value)

    def _wrap(self, array: Any) -> Any:
        if not self.network.output and not self._preserve_tensor:
            return _number(array)
        quimb = _optional.load("quimb.tensor", "a network's tensor")
        tags = None
        if not self._drop_tags:
            tags = [tag for tensor in self._tensors for tag in tensor.tags]
        return quimb.Tensor(data=array, inds=self.network.output, tags=tags)


def _number(array: Any) -> Any:
    """A NumPy scalar as Python's number, real where only rounding made it complex."""
    if type(array).__module__.partition(".")[0] != "numpy":
        return array
    number = array.item()
    if isinstance(number, complex) and abs(number.imag) < abs(number.real) * _IMAGINARY_TOLERANCE:
        return number.real
    return number
