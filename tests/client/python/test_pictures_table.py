"""The table of scores: values, order within columns, names."""

import drawn
import numpy as np
import pytest
from drawn import pyplot

import tenon
from tenon import pictures
from tenon.pictures._table import _direction

POINTS = np.random.default_rng(2).standard_normal((30, 5))
NOISE = np.random.default_rng(3).standard_normal((30, 2))
MEASURES = [("tnc", {"k": 5}), "stress", ("tnc", {"k": 7})]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def shares(ax):
    image, = ax.get_images()
    return image.get_array()


def texts(ax):
    return {text.get_position()[::-1]: text.get_text() for text in ax.texts}


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_colours_go_from_worst_to_best_within_a_column():
    rows = {"a": {"trustworthiness": 0.5, "stress": 3.0, "topographic_product": -0.1},
            "b": {"trustworthiness": 0.9, "stress": 1.0, "topographic_product": 0.3},
            "c": {"trustworthiness": 0.8, "stress": 2.0, "topographic_product": 0.2}}
    ax = pictures.score_table(rows)
    np.testing.assert_allclose(shares(ax), [(0, 0, 1), (1, 1, 0), (0.75, 0.5, 0.5)])
    assert labels(ax.yaxis) == ["a", "b", "c"]
    assert labels(ax.xaxis) == ["trustworthiness ↑", "stress ↓", "topographic product → 0"]
    assert texts(ax)[1, 0] == "0.9" and texts(ax)[0, 2] == "-0.1"
    bold = [text.get_text() for text in ax.texts if text.get_fontweight() == "bold"]
    assert bold == ["-0.1", "0.9", "1"]
    bar = ax.figure.axes[1]
    assert labels(bar.yaxis) == ["worst", "best"] and "no unit" in bar.get_ylabel()
    drawn.render(ax)


def test_numbers_stand_out_from_their_cells():
    ax = pictures.score_table(np.linspace(0, 1, 7)[:, None], ["lcmc"])
    image, = ax.get_images()
    for text in ax.texts:
        row = text.get_position()[1]
        cell = np.array(image.to_rgba(shares(ax))[row, 0, :3]) @ (0.2126, 0.7152, 0.0722)
        assert abs(cell - (text.get_color() == "white")) > 0.4


def test_directions_are_those_that_the_server_tells(client):
    names = {0: "zero", 1: "higher", 2: "lower"}
    checked = [(output.key, names[output.direction])
               for measure in client.measures() for output in measure.outputs]
    assert len(checked) > 22
    for key, direction in checked:
        assert _direction(key, {}) == direction, key


def test_results_of_a_stream_are_rows(client):
    ax = pictures.score_table(client.measure(
        POINTS, MEASURES, {"first": POINTS[:, :2], "noise": NOISE, "short": NOISE[:9]}))
    assert labels(ax.yaxis) == ["first", "noise", "short"]
    assert labels(ax.xaxis) == ["trustworthiness (1) ↑", "continuity (1) ↑", "stress ↓",
                                "trustworthiness (2) ↑", "continuity (2) ↑"]
    runs = list(client.measure(POINTS, MEASURES, [POINTS[:, :2], NOISE]))
    for row, run in enumerate(runs):
        values = [value for part in run.values for value in part.values()]
        assert [texts(ax)[row, column] for column in range(5)] == [f"{value:.3g}"
                                                                   for value in values]
    assert shares(ax).mask.tolist() == [[False] * 5, [False] * 5, [True] * 5]
    assert texts(ax)[2, 0] == "–"
    assert labels(pictures.score_table(runs).yaxis) == ["0", "1"]
    named = {run.name: run for run in client.measure(POINTS, "stress", {"x": NOISE})}
    assert labels(pictures.score_table(named).yaxis) == ["x"]
    assert labels(pictures.score_table(named["x"]).yaxis) == ["x"]


def test_a_measure_that_failed_leaves_its_own_cells_empty(client):
    flat = np.zeros((30, 2))  # distances that are all equal have no correlation
    runs = list(client.measure(POINTS, ["pr", ("tnc", {"k": 5})], {"noise": NOISE, "flat": flat},
                               on_error="skip_measure"))
    assert runs[1].measure_errors[0] is not None
    ax = pictures.score_table(runs)
    assert labels(ax.xaxis)[0] == "pearson r ↑"
    assert shares(ax).mask.tolist() == [[False] * 3, [True, False, False]]


def test_results_of_zadu_are_rows(client):
    specs = [{"id": "tnc", "params": {"k": 5}}, {"id": "stress", "params": {}}]
    plain = tenon.ZADU(specs, POINTS, client=client)
    local = tenon.ZADU(specs, POINTS, return_local=True, client=client)
    expected = shares(pictures.score_table(plain.measure_many([POINTS[:, :2], NOISE])))
    assert expected.tolist() == [[1, 1, 1], [0, 0, 0]]
    for runs in (local.measure_many([POINTS[:, :2], NOISE]),
                 local.iter_measure_many([POINTS[:, :2], NOISE])):
        ax = pictures.score_table(runs, names=["first", "noise"])
        np.testing.assert_array_equal(shares(ax), expected)
        assert labels(ax.yaxis) == ["first", "noise"]


def test_columns_are_chosen_and_told_which_way_is_better():
    rows = [{"x": 1.0, "y": 5.0}, {"x": 2.0, "y": 7.0}]
    ax = pictures.score_table(rows, ["y", "x"], better={"x": "lower"})
    assert shares(ax).tolist() == [[0, 1], [1, 0]] and labels(ax.xaxis) == ["y ↑", "x ↓"]


def test_a_matrix_with_gaps():
    ax = pictures.score_table(np.array([[1, np.nan], [3, 2], [np.inf, np.nan]]), ["lcmc", "nh"])
    np.testing.assert_array_equal(shares(ax).filled(-1), [[0, -1], [1, 1], [-1, -1]])
    assert texts(ax)[2, 0] == "inf" and texts(ax)[0, 1] == "–"
    drawn.render(pictures.score_table(np.full((2, 2), np.nan), ["a", "b"]))


def test_extreme_values_keep_their_order():
    ax = pictures.score_table(np.array([[-1.7e308], [0], [1.7e308]]), ["lcmc"])
    np.testing.assert_allclose(shares(ax).ravel(), [0, 0.5, 1])


def test_numbers_may_be_left_out_and_are_in_large_tables():
    assert not pictures.score_table(np.ones((2, 2)), ["a", "b"], number_format="").texts
    assert not pictures.score_table(np.ones((301, 2)), ["a", "b"]).texts
    assert texts(pictures.score_table(np.ones((1, 1)), ["a"], number_format=".2f"))[0, 0] == "1.00"


def test_axes_are_used_and_returned():
    ax = drawn.new_axes()
    assert pictures.score_table(np.ones((2, 2)), ["a", "b"], ax, colour_bar=False) is ax
    assert ax.figure.axes == [ax] and len(pyplot.get_fignums()) == 1


@pytest.mark.parametrize("arguments,options,reason,field", [
    ((np.ones((2, 2)),), {}, "MISSING_FIELD", "keys"),
    ((np.ones((2, 2)), ["a"]), {}, "SHAPE_MISMATCH", "runs"),
    ((np.ones(2), ["a", "b"]), {}, "SHAPE_MISMATCH", "runs"),
    ((np.ones((0, 1)), ["a"]), {}, "SHAPE_MISMATCH", "runs"),
    (([],), {}, "MISSING_FIELD", "runs"),
    (({},), {}, "MISSING_FIELD", "runs"),
    (([{}],), {}, "MISSING_FIELD", "runs"),
    ((7,), {}, "BAD_PARAMETER", "runs"),
    (("abc",), {}, "BAD_PARAMETER", "runs"),
    (([[1.0, 2.0]],), {}, "BAD_PARAMETER", "runs"),
    (([{"a": "x"}],), {}, "UNSUPPORTED_DTYPE", "runs"),
    (([{"a": 1.0}], ["b"]), {}, "BAD_PARAMETER", "keys"),
    (([{"a": 1.0}],), {"names": ["x", "y"]}, "SHAPE_MISMATCH", "names"),
    (([{"a": 1.0}],), {"better": {"a": "bigger"}}, "BAD_PARAMETER", "better.a"),
])
def test_what_is_wrong_is_said(arguments, options, reason, field):
    with pytest.raises(tenon.InvalidRequest) as caught:
        pictures.score_table(*arguments, **options)
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert not pyplot.get_fignums()
