"""Measures with their parameters, from Python's forms to the wire's.

Parameters have the names of the fields in proto/tenon/v1/measure_spec.proto, and besides those of
zadu and scikit-learn: ``random_state``, ``random_seed``, ``n_jobs``, ``clustering_args``, and
``metric`` as a function.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _random
from tenon.errors import InvalidRequest, Unsupported
from tenon.measure_ids import full_id
from tenon.v1 import measure_spec_pb2

Parameters = dict[str, Any]
# Takes a distance of two rows; returns the handle of the matrix of all distances in the data set.
MatrixSource = Callable[[Callable[[Any, Any], float]], str]


def normalise(spec: Any, field: str) -> tuple[str, Parameters]:
    """Full id and parameters of "tnc", ("tnc", {"k": 10}) or {"id": "tnc", "params": {"k": 10}}."""
    if isinstance(spec, Mapping):
        if "id" not in spec:
            raise InvalidRequest("a measure has no 'id'", reason="MISSING_FIELD", field=field)
        name, parameters = spec["id"], spec.get("params")
    elif isinstance(spec, tuple) and len(spec) == 2:
        name, parameters = spec
    elif isinstance(spec, str):
        name, parameters = spec, None
    else:
        raise TypeError(f"{field} is {type(spec).__name__}; expected is a name, a pair of name and "
                        "parameters, or a dict with 'id' and 'params'")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"{field}: parameters are a dict, not {type(parameters).__name__}")
    return full_id(name, field + ".id"), dict(parameters or {})


def normalise_all(specs: Any) -> list[tuple[str, Parameters]]:
    """One measure, or a sequence of them; see `normalise`."""
    one = isinstance(specs, (str, Mapping)) or (
        isinstance(specs, tuple) and len(specs) == 2 and isinstance(specs[1], Mapping))
    if not one and not isinstance(specs, Sequence):
        raise TypeError(f"measures are a sequence, not {type(specs).__name__}")
    return [normalise(spec, f"specs[{number}]") for number, spec in
            enumerate([specs] if one else specs)]


def to_wire(specs: Sequence[tuple[str, Parameters]], rng: str,
            matrix: MatrixSource) -> list[measure_spec_pb2.MeasureSpec]:
    """The wire's specs of normalised ones.

    Raises:
      InvalidRequest: unknown measures or parameters, values without a meaning.
      TypeError: values of the wrong type.
    """
    messages = []
    for number, (name, parameters) in enumerate(specs):
        message = measure_spec_pb2.MeasureSpec(id=name)
        target = getattr(message, name)
        target.SetInParent()
        adapt = _ADAPTERS.get(name)
        if adapt is not None:
            parameters = adapt(dict(parameters), rng, matrix)
        _fill(target, parameters, f"specs[{number}].{name}")
        messages.append(message)
    return messages


def parameter_names(name: str) -> set[str]:
    """What a measure's parameters may be called, by its full id."""
    field = measure_spec_pb2.MeasureSpec.DESCRIPTOR.fields_by_name[name]
    return {inner.name for inner in field.message_type.fields} | _FURTHER_NAMES.get(name, set())


def _fill(message: Any, parameters: Mapping[str, Any], where: str) -> None:
    for name, value in parameters.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise InvalidRequest(f"there is no parameter '{name}'", reason="BAD_PARAMETER",
                                 field=f"{where}.{name}")
        if value is not None:
            _set(message, field, value, f"{where}.{name}")


def _set(message: Any, field: Any, value: Any, where: str) -> None:
    if field.type == field.TYPE_MESSAGE:
        if not isinstance(value, Mapping):
            raise TypeError(f"{where} is {type(value).__name__}; expected is a dict")
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, value, where)
    elif field.type == field.TYPE_ENUM:
        setattr(message, field.name, _enumerated(field.enum_type, value, where))
    elif field.type == field.TYPE_DOUBLE:
        _check_type(value, numbers.Real, "a real number", where)
        setattr(message, field.name, float(value))
    elif field.type in (field.TYPE_INT32, field.TYPE_INT64, field.TYPE_UINT64):
        _check_type(value, numbers.Integral, "an integer", where)
        try:
            setattr(message, field.name, int(value))
        except ValueError:
            raise InvalidRequest(f"{value} is out of range", reason="BAD_PARAMETER",
                                 field=where) from None
    elif field.type == field.TYPE_BOOL:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{where} is {type(value).__name__}; expected is True or False")
        setattr(message, field.name, bool(value))
    else:
        _check_type(value, str, "a text", where)
        setattr(message, field.name, value)


def _check_type(value: Any, kind: type, expected: str, where: str) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kind):
        raise TypeError(f"{where} is {type(value).__name__}; expected is {expected}")


def short_names(descriptor: Any) -> dict[str, int]:
    """The values of an enumeration by the part of their names that differs, in lower case."""
    prefix = descriptor.values[0].name.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix).lower(): value.number
            for value in descriptor.values[1:]}


def _enumerated(descriptor: Any, value: Any, where: str) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{where} is {type(value).__name__}; expected is a text")
    names = short_names(descriptor)
    if value.lower() not in names:
        raise InvalidRequest(f"'{value}' is not one of " + ", ".join(names),
                             reason="BAD_PARAMETER", field=where)
    return names[value.lower()]


def _randomised(parameters: Parameters, rng: str, *names: str) -> Parameters:
    """`random` out of a seed, a generator of NumPy, or nothing: then the server draws a seed."""
    if "random" in parameters:
        return parameters
    given = [parameters.pop(name) for name in names if name in parameters]
    state = next((value for value in given if value is not None), None)
    parameters["random"] = {"generator": rng,
                            "seed": None if state is None else _random.seed_of(state)}
    return parameters


def _randomised_globally(parameters: Parameters, rng: str, *names: str) -> Parameters:
    """The same, but nothing means NumPy's global generator where its numbers are asked for."""
    parameters = _randomised(parameters, rng, *names)
    random = parameters["random"]
    if isinstance(random, dict) and random.get("seed") is None and rng == "numpy":
        random["seed"] = _random.seed_of(None)
    return parameters


def _steadiness(parameters: Parameters, rng: str, _: MatrixSource) -> Parameters:
    if "n_jobs" in parameters:
        parameters["workers"] = parameters.pop("n_jobs")
    strategy = parameters.get("clustering_strategy")
    if isinstance(strategy, str) and strategy.endswith("-means"):
        count = strategy.removesuffix("-means")
        # isdecimal alone lets digits of other scripts through.
        if count.isascii() and count.isdecimal():
            parameters["clustering_strategy"] = "kmeans"
            parameters["cluster_count"] = int(count)
    return _randomised_globally(parameters, rng, "random_state", "seed")


def _angles(parameters: Parameters, rng: str, _: MatrixSource) -> Parameters:
    return _randomised(parameters, rng, "random_seed", "random_state", "seed")


def _label_pairs(parameters: Parameters, rng: str, _: MatrixSource) -> Parameters:
    validity = parameters.get("cvm")
    if isinstance(validity, str) and validity.lower() == "ch_btw":
        return _randomised_globally(parameters, rng, "random_state", "seed")
    return parameters


# Arguments of scikit-learn's clusterings that say how, not what.
_WITHOUT_EFFECT = {"algorithm", "copy_x", "leaf_size", "n_jobs", "verbose"}
_SCIPY_NAMES = {"manhattan": "cityblock", "l1": "cityblock", "l2": "euclidean"}


def _clustering(parameters: Parameters, rng: str, _: MatrixSource) -> Parameters:
    arguments = parameters.pop("clustering_args", None)
    if arguments is None:
        return parameters
    if not isinstance(arguments, Mapping):
        raise TypeError(f"clustering_args is {type(arguments).__name__}; expected is a dict")
    arguments = {name: value for name, value in arguments.items() if name not in _WITHOUT_EFFECT}
    kind = parameters.get("clustering") or "kmeans"
    if str(kind).lower() == "dbscan":
        parameters["dbscan"] = _dbscan(arguments)
    else:
        parameters["kmeans"] = _kmeans(arguments, rng)
    return parameters


def _kmeans(arguments: Parameters, rng: str) -> Parameters:
    _refuse_others(arguments, "KMeans", {"n_clusters", "n_init", "init", "max_iter", "tol",
                                         "random_state"})
    if arguments.get("n_init") == "auto":
        del arguments["n_init"]
    init = arguments.get("init")
    if init is not None and not isinstance(init, str):
        raise Unsupported("k-means takes no centres of one's own; init is 'k-means++' or 'random'",
                          reason="BAD_PARAMETER", field="clustering_args.init")
    if init == "k-means++":
        arguments["init"] = "plus_plus"
    if "random_state" in arguments:
        arguments = _randomised(arguments, rng, "random_state")
        arguments["random"]["generator"] = None  # k-means has but the server's own
    return arguments


def _dbscan(arguments: Parameters) -> Parameters:
    _refuse_others(arguments, "DBSCAN", {"eps", "min_samples", "metric", "metric_params", "p"})
    further = arguments.pop("metric_params", None) or {}
    order = further.get("p", arguments.pop("p", None))
    if callable(arguments.get("metric")):
        raise Unsupported("DBSCAN takes the name of a metric, not a function",
                          reason="BAD_PARAMETER", field="clustering_args.metric")
    given = arguments.get("metric")
    metric = _SCIPY_NAMES.get(str(given), given)
    return {**arguments, "metric": metric,
            "minkowski_p": order if metric == "minkowski" else None}


def _refuse_others(arguments: Parameters, name: str, known: set[str]) -> None:
    if not arguments.keys() <= known:
        raise TypeError(f"{name} has no argument "
                        + ", ".join(sorted(arguments.keys() - known)))


def _gaps(parameters: Parameters, _: str, matrix: MatrixSource) -> Parameters:
    metric = parameters.get("metric")
    if callable(metric):
        parameters["metric"] = "precomputed"
        parameters["precomputed_handle"] = matrix(metric)
    return parameters


_ADAPTERS: dict[str, Callable[[Parameters, str, MatrixSource], Parameters]] = {
    "steadiness_cohesiveness": _steadiness,
    "class_angular_distortion_index": _angles,
    "label_trustworthiness_and_continuity": _label_pairs,
    "clustering_and_external_validation_measure": _clustering,
    "gap_index": _gaps,
}
_FURTHER_NAMES = {
    "steadiness_cohesiveness": {"n_jobs", "random_state", "seed"},
    "class_angular_distortion_index": {"random_seed", "random_state", "seed"},
    "label_trustworthiness_and_continuity": {"random_state", "seed"},
    "clustering_and_external_validation_measure": {"clustering_args"},
}
