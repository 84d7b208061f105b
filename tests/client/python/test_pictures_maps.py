"""CheckViz and the reliability map: the cells, edges and colours that are drawn."""

import drawn
import numpy as np
import pytest
from drawn import pyplot
from zaduvis.colormap import cielab_to_rgb_hex

import tenon
from tenon import pictures
from tenon.pictures._colours import HATCHES, OKABE_ITO, of_name, two_values

NUMBERS = np.random.default_rng(11)
POINTS = NUMBERS.standard_normal((40, 2)) * (3, 1) + (10, -5)
TRUST, CONT = NUMBERS.uniform(0.2, 1, 40), NUMBERS.uniform(0.5, 1, 40)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def cells(ax):
    collection, = drawn.polygons(ax)
    return collection.get_paths(), collection.get_facecolors()[:, :3]


def lexical(points):
    return np.lexsort((points[:, 1], points[:, 0]))


# Colours

def test_the_scale_is_linear_in_cielab():
    for false, missing in [(0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.25), (0.1, 0.7)]:
        lightness = 100 - 45 * (false + missing)
        text = cielab_to_rgb_hex(lightness, 50 * (false - missing), 40 * (missing - false))
        expected = [int(text[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        np.testing.assert_allclose(two_values(false, missing), expected, atol=1.5 / 255)


def test_the_scale_stays_inside_srgb_and_ends_at_its_limits():
    grid = np.linspace(0, 1, 41)
    colours = two_values(grid[:, None], grid[None, :])
    assert colours.shape == (41, 41, 3)
    assert colours.min() > 0.05 and colours.max() <= 1  # nothing was cut off at 0
    np.testing.assert_array_equal(two_values(-1, 5), two_values(0, 1))


def _linear(colour):
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055)**2.4)


def _lab(linear):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722],
                    [0.0193, 0.1192, 0.9505]]) @ np.clip(linear, 0, 1)
    x, y, z = np.cbrt(np.maximum(xyz / (0.9505, 1, 1.089), 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# G. M. Machado, M. M. Oliveira, L. A. F. Fernandes 2009, full severity.
DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colour_blind_people_tell_the_distortions_apart(deficiency):
    seen = [_lab(np.array(DEFICIENCIES[deficiency]) @ _linear(two_values(*corner)))
            for corner in [(0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5)]]
    for first in range(len(seen)):
        for second in range(first):
            assert np.linalg.norm(seen[first] - seen[second]) > 20


def test_names_have_looks_of_their_own_when_colours_run_out():
    count = len(OKABE_ITO) * len(HATCHES)
    assert len({tuple(of_name(number).values()) for number in range(count)}) == count


# CheckViz

def test_every_place_has_the_colour_of_its_nearest_point():
    ax = pictures.checkviz(POINTS, TRUST, CONT, limit=1)
    paths, colours = cells(ax)
    order = lexical(POINTS)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert left < POINTS[:, 0].min() and right > POINTS[:, 0].max()
    for place in NUMBERS.uniform((left, low), (right, high), (300, 2)):
        distances = np.hypot(*(POINTS[order] - place).T)
        inside = [number for number, path in enumerate(paths) if path.contains_point(place)]
        assert inside == [distances.argmin()]
    np.testing.assert_allclose(colours, two_values(1 - TRUST, 1 - CONT)[order])
    np.testing.assert_array_equal(drawn.marks(ax)[0].get_offsets(), POINTS)
    drawn.render(ax)


def test_the_largest_distortion_has_the_full_colour_unless_a_limit_is_given():
    _, colours = cells(pictures.checkviz(POINTS, TRUST, CONT))
    largest = (1 - TRUST).max()
    np.testing.assert_allclose(
        colours, two_values((1 - TRUST) / largest, (1 - CONT) / largest)[lexical(POINTS)])
    ax = pictures.checkviz(POINTS, TRUST, CONT, limit=0.2)
    np.testing.assert_allclose(cells(ax)[1],
                               two_values((1 - TRUST) / 0.2, (1 - CONT) / 0.2)[lexical(POINTS)])
    assert ax.child_axes[0].get_xlim() == pytest.approx((0, 0.2))


def test_without_distortions_all_is_white():
    _, colours = cells(pictures.checkviz(POINTS, np.ones(40), np.ones(40)))
    np.testing.assert_allclose(colours, 1, atol=1e-3)


def test_the_legend_names_both_scores():
    square = pictures.checkviz(POINTS, TRUST, CONT).child_axes[0]
    assert square.get_xlabel() == "false neighbours\n(1 − trustworthiness)"
    assert square.get_ylabel() == "missing neighbours\n(1 − continuity)"
    image = square.get_images()[0].get_array()
    np.testing.assert_allclose(image[0, -1], two_values(1, 0))  # x: false
    np.testing.assert_allclose(image[-1, 0], two_values(0, 1))
    assert not pictures.checkviz(POINTS, TRUST, CONT, legend=False).child_axes
    assert not drawn.marks(pictures.checkviz(POINTS, TRUST, CONT, point_size=0))


def test_points_that_coincide_share_a_cell():
    points = np.array([(0, 0), (1, 0), (0, 0), (2, 3.0)])
    ax = pictures.checkviz(points, [0.0, 1, 0.5, 1], [1.0, 1, 0, 1], limit=1)
    paths, colours = cells(ax)
    assert len(paths) == 3
    np.testing.assert_allclose(colours[0], two_values(0.75, 0.5))
    assert len(drawn.marks(ax)[0].get_offsets()) == 4


@pytest.mark.parametrize("points", [
    [(3, 4)], [(0, 0), (1, 1)], [(0, 0), (0, 0)], [(0, 0), (1, 2), (2, 4), (3, 6)],
    [(1e-200, 0), (2e-200, 0), (0, 1e-200)], [(1e200, 0), (2e200, 0), (0, -1e200)],
    [(1, 1), (1, 1 + 1e-15), (2, 5)]])
def test_few_and_strange_points_are_drawn(points):
    ax = pictures.checkviz(points, np.ones(len(points)), np.zeros(len(points)))
    paths, _ = cells(ax)
    for point in points:
        assert any(path.contains_point(point, radius=1e-9) for path in paths) or len(points) == 3
    drawn.render(ax)


# Results of measurements

@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(5).standard_normal((40, 6))


@pytest.fixture(scope="module")
def run(client, data):
    found, = client.measure(data, [("stress", {}), ("mrre", {"k": 5}), ("tnc", {"k": 5})], POINTS,
                            return_local=True)
    return found


def test_results_of_measurements_are_taken(client, data, run):
    expected = {measure: cells(pictures.checkviz(POINTS, *run.local[place].values()))[1]
                for place, measure in ((1, "mrre"), (2, "tnc"))}
    assert not np.allclose(expected["mrre"], expected["tnc"])
    zadu = tenon.ZADU([{"id": "tnc", "params": {"k": 5}}], data, return_local=True, client=client)
    item, = zadu.iter_measure_many([POINTS])
    for scores in (run, run.local, zadu.measure(POINTS), zadu.measure(POINTS)[1], item,
                   run.local[2]):
        _, colours = cells(pictures.checkviz(POINTS, scores, measure="tnc"))
        np.testing.assert_allclose(colours, expected["tnc"])
    # The first measure with both scores is taken; stress has none.
    for measure in (None, "mean_relative_rank_error", tenon.MEASURE.MRRE):
        ax = pictures.checkviz(POINTS, run, measure=measure)
        np.testing.assert_allclose(cells(ax)[1], expected["mrre"])
    assert "mrre false" in ax.child_axes[0].get_xlabel()


def test_a_projection_without_scores_raises_its_own_error(client, data):
    found, = client.measure(data, ("tnc", {"k": 5}), POINTS[:7], return_local=True)
    with pytest.raises(tenon.InvalidRequest) as caught:
        pictures.checkviz(POINTS, found)
    assert caught.value is found.error


# Reliability map

def edges_of(ax):
    collection, = drawn.lines(ax)
    return collection.get_segments(), collection.get_colors()[:, :3]


@pytest.mark.parametrize("k", [1, 7, 39])
def test_every_point_is_joined_with_its_neighbours_in_the_mean_colour_of_both(k):
    segments, colours = edges_of(pictures.reliability_map(POINTS, TRUST, CONT, k=k, limit=1))
    expected = set()
    for point in POINTS:
        distances = np.hypot(*(POINTS - point).T)
        for neighbour in POINTS[distances.argsort()[1:k + 1]]:
            expected.add(frozenset([tuple(point), tuple(neighbour)]))
    assert {frozenset(map(tuple, segment)) for segment in segments} == expected
    assert len(segments) == len(expected)
    numbers = {tuple(point): number for number, point in enumerate(POINTS)}
    for segment, colour in zip(segments, colours):
        ends = [numbers[tuple(point)] for point in segment]
        assert ends == sorted(ends)
        expected = two_values(1 - TRUST[ends].mean(), 1 - CONT[ends].mean())
        np.testing.assert_allclose(colour, expected)


def test_right_edges_are_seen_on_their_ground():
    ax = pictures.reliability_map(POINTS, np.ones(40), np.ones(40))
    assert np.abs(edges_of(ax)[1] - ax.get_facecolor()[:3]).min() > 0.2
    drawn.render(ax)


def test_many_points_that_coincide_have_k_neighbours_each():
    points = np.zeros((12, 2))
    segments, _ = edges_of(pictures.reliability_map(points, np.ones(12), np.ones(12), k=3))
    assert 12 * 3 / 2 <= len(segments) <= 12 * 3


def test_axes_are_used_and_returned():
    ax = drawn.new_axes()
    before = pyplot.get_fignums()
    assert pictures.checkviz(POINTS, TRUST, CONT, ax) is ax
    assert pictures.reliability_map(POINTS, TRUST, CONT, ax=ax) is ax
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("draw", [pictures.checkviz, pictures.reliability_map])
@pytest.mark.parametrize("arguments,options,reason,field", [
    ((POINTS[:, :1], TRUST, CONT), {}, "SHAPE_MISMATCH", "points"),
    ((POINTS[:0], TRUST[:0], CONT[:0]), {}, "SHAPE_MISMATCH", "points"),
    ((POINTS.ravel(), TRUST, CONT), {}, "SHAPE_MISMATCH", "points"),
    ((POINTS, TRUST[:-1], CONT), {}, "SHAPE_MISMATCH", "trustworthiness"),
    ((POINTS, TRUST, CONT[:, None]), {}, "SHAPE_MISMATCH", "continuity"),
    ((np.where(POINTS > 12, np.nan, POINTS), TRUST, CONT), {}, "NOT_FINITE", "points"),
    ((POINTS, np.where(TRUST > 0.9, np.inf, TRUST), CONT), {}, "NOT_FINITE", "trustworthiness"),
    ((POINTS, TRUST, CONT * np.nan), {}, "NOT_FINITE", "continuity"),
    ((POINTS + 1j, TRUST, CONT), {}, "UNSUPPORTED_DTYPE", "points"),
    ((POINTS, ["x"] * 40, CONT), {}, "UNSUPPORTED_DTYPE", "trustworthiness"),
    (([[1, 2], [3]], TRUST, CONT), {}, "SHAPE_MISMATCH", "points"),
    (([(-1.7e308, 0), (1.7e308, 0)], [1, 1], [1, 1]), {}, "NOT_FINITE", "points"),
    ((POINTS, TRUST), {}, "BAD_PARAMETER", "scores"),
    ((POINTS, [{"local_lcmc": TRUST}]), {}, "MISSING_FIELD", "scores"),
    ((POINTS, []), {}, "MISSING_FIELD", "scores"),
    ((POINTS, {"local_trustworthiness": TRUST, "local_continuity": CONT}), {"measure": "mrre"},
     "MISSING_FIELD", "scores"),
    ((POINTS, {}), {"measure": "stress"}, "BAD_PARAMETER", "measure"),
    ((POINTS, {}), {"measure": "beauty"}, "UNKNOWN_MEASURE", "measure"),
    ((POINTS, TRUST, CONT), {"limit": 0}, "BAD_PARAMETER", "limit"),
    ((POINTS, TRUST, CONT), {"limit": float("nan")}, "BAD_PARAMETER", "limit"),
    ((POINTS, TRUST, CONT), {"limit": "1"}, "BAD_PARAMETER", "limit"),
])
def test_what_is_wrong_is_said(draw, arguments, options, reason, field):
    if draw is pictures.reliability_map and len(arguments[0]) == 2:
        options = {"k": 1}
    with pytest.raises(tenon.InvalidRequest) as caught:
        draw(*arguments, **options)
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert not pyplot.get_fignums()  # nothing half drawn is left behind


@pytest.mark.parametrize("k", [0, 40, True, 1.5, "2"])
def test_k_out_of_range(k):
    with pytest.raises(tenon.InvalidRequest, match="1 <= k < n") as caught:
        pictures.reliability_map(POINTS, TRUST, CONT, k=k)
    assert caught.value.reason == "K_OUT_OF_RANGE"


def test_axes_that_are_none_are_a_type_error():
    with pytest.raises(TypeError, match="Axes"):
        pictures.checkviz(POINTS, TRUST, CONT, ax=np.array([1]))
