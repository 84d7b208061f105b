"""The tree of a contraction: costs as cotengra and the server count them, and where it is drawn."""

import cotengra
import drawn
import numpy as np
import pytest
from drawn import pyplot

import tenon
from tenon import pictures
from tenon.pictures._tree_costs import tree_costs


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def grid(side, size=3):
    """Tensors of a square grid; neighbours share an index."""
    inputs = []
    for row in range(side):
        for column in range(side):
            names = [("down", row, column), ("down", row - 1, column), ("right", row, column),
                     ("right", row, column - 1)]
            inputs.append([name for name in names if 0 <= name[1] and 0 <= name[2]
                           and name[1] + (name[0] == "down") < side
                           and name[2] + (name[0] == "right") < side])
    return inputs, {name: size + name[1] % 2 for names in inputs for name in names}


def parts(ax):
    """Segments and sizes of the lines, places and costs of the steps, places of the operands."""
    line, = drawn.lines(ax)
    steps, operands = drawn.marks(ax)
    return (np.array(line.get_segments()), line.get_array(), steps.get_offsets(),
            steps.get_array(), operands.get_offsets())


# Costs

@pytest.mark.parametrize("seed", range(6))
def test_costs_are_cotengras(seed):
    inputs, output, _, sizes = cotengra.utils.rand_equation(
        9, 3, n_out=2, n_hyper_in=2, n_hyper_out=1, d_min=2, d_max=4, seed=seed)
    tree = cotengra.array_contract_tree(inputs, output, sizes, optimize="greedy")
    tree = tree.slice(target_slices=4, seed=seed)
    path = tree.get_ssa_path()
    inputs, output, sizes = tree.inputs, tree.output, tree.size_dict  # under names of its own
    costs = tree_costs(inputs, output, sizes, path, tree.sliced_inds)
    assert costs.total_log10_flops == pytest.approx(tree.total_flops(log=10))
    assert costs.largest_log2_size == pytest.approx(tree.contraction_width())
    assert 10**costs.log10_slices == pytest.approx(tree.multiplicity)
    ax = pictures.contraction_tree(path, inputs, output, sizes, sliced=tree.sliced_inds, ssa=True)
    flops = sorted(tree.get_flops(node) for node, _, _ in tree.traverse())
    np.testing.assert_allclose(sorted(10**parts(ax)[3]), flops)


def test_a_plan_is_drawn_with_the_servers_costs(client):
    inputs, sizes = grid(4)
    plan = client.plan(inputs, [], sizes, max_trials=16, target_size=40, seed=3)
    assert plan.slices > 1
    ax = pictures.contraction_tree(plan, inputs, [], sizes)
    _, widths, steps, flops, operands = parts(ax)
    assert len(operands) == 16 and len(steps) == 15 and len(widths) == 30
    assert np.log10((10**flops).sum()) == pytest.approx(plan.summary.per_slice.log10_flops)
    assert widths[16:].max() == pytest.approx(
        plan.summary.per_slice.log2_largest_intermediate)
    assert f"10^{plan.summary.total.log10_flops:.2f} multiply-adds" in ax.get_title()
    assert f"{plan.slices} slices" in ax.get_title()
    drawn.render(ax)


def test_reports_and_paths_are_drawn_alike(client):
    inputs, sizes = grid(3)
    arrays = [np.ones([sizes[name] for name in names]) for names in inputs]
    plan = client.plan(inputs, [], sizes, max_trials=8, target_size=20)
    _, report = client.contract(inputs, [], sizes, arrays, plan=plan, return_info=True)
    expected = parts(pictures.contraction_tree(plan, inputs, [], sizes))
    for got in (pictures.contraction_tree(report, inputs, [], sizes),
                pictures.contraction_tree(plan.ssa_path, inputs, [], sizes, sliced=plan.sliced,
                                          ssa=True)):
        for first, second in zip(parts(got), expected, strict=True):
            np.testing.assert_array_equal(first, second)
    # The linear path names the operands of a step in their own order: another side is left.
    linear = parts(pictures.contraction_tree(plan.linear_path, inputs, [], sizes,
                                             sliced=plan.sliced))
    np.testing.assert_array_equal(linear[1], expected[1])
    np.testing.assert_allclose(linear[3], expected[3])
    np.testing.assert_array_equal(linear[2][:, 1], expected[2][:, 1])
    # Two names with the same text: the server tells them apart by another one.
    ring, alike = [(1, "1"), ("1", 2), (2, 1)], {1: 3, "1": 4, 2: 5}
    _, report = client.contract(ring, [], alike, [np.ones([alike[name] for name in part])
                                                  for part in ring],
                                path=[(0, 1), (0, 1)], sliced=["1"], return_info=True)
    assert "in 4 slices" in pictures.contraction_tree(report, ring, [], alike).get_title()
    _, brief = client.contract(inputs, [], sizes, arrays, plan=plan, return_info=True,
                               detail="brief")
    with pytest.raises(tenon.InvalidRequest, match="detail") as caught:
        pictures.contraction_tree(brief, inputs, [], sizes)
    assert caught.value.reason == "MISSING_FIELD"


def test_a_plan_that_holds_its_network_needs_nothing_else(client):
    inputs, sizes = grid(3)
    plan = client.plan(inputs, [], sizes, max_trials=4)
    expected = parts(pictures.contraction_tree(plan, inputs, [], sizes))
    for first, second in zip(parts(pictures.contraction_tree(plan)), expected, strict=True):
        np.testing.assert_array_equal(first, second)
    plan.network = None
    with pytest.raises(tenon.InvalidRequest, match="network"):
        pictures.contraction_tree(plan)


def test_steps_of_one_and_of_many_operands():
    inputs, sizes = ["ab", "bc", "cd"], {"a": 2, "b": 3, "c": 5, "d": 7}
    costs = tree_costs(inputs, "a", sizes, [(2,), (0, 1, 3)])
    # Sums over d; then ab,bc->ac and ac,c->a.
    np.testing.assert_allclose(10**np.array(costs.log10_flops), [35, 2 * 3 * 5 + 2 * 5])
    np.testing.assert_allclose(2**np.array(costs.log2_sizes), [6, 15, 35, 5, 2])


# Places

def test_steps_stand_above_their_operands_and_nothing_crosses():
    inputs, sizes = ["ab", "bc", "cd", "de"], dict.fromkeys("abcde", 2)
    ax = pictures.contraction_tree([(1, 2), (0, 4), (3, 5)], inputs, "ae", sizes, ssa=True)
    segments, sizes, steps, _, operands = parts(ax)
    # Tree (3, (0, (1, 2))): operands from left to right are 3, 0, 1, 2.
    assert operands.tolist() == [[1, 0], [2, 0], [3, 0], [0, 0]]
    assert steps.tolist() == [[2.5, 1], [1.75, 2], [0.875, 3]]
    assert segments[4].tolist() == [[2.5, 1], [2.5, 2], [1.75, 2]]
    assert sizes.tolist() == [2] * 6
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "2", "3"]
    assert list(ax.get_xticks()) == [1, 2, 3, 0]


def test_scales_say_what_they_show():
    inputs, sizes = grid(3)
    ax = pictures.contraction_tree([(0, 1)] * 8, inputs, [], sizes)
    assert [bar.get_ylabel() for bar in ax.figure.axes[1:]] == [
        "tensor: elements per slice, log2", "step: multiply-adds per slice, log10"]
    alone = drawn.new_axes()
    assert pictures.contraction_tree([(0, 1)] * 8, inputs, [], sizes, alone,
                                     colour_bars=False) is alone
    assert alone.figure.axes == [alone]


def test_thousands_of_steps_in_a_row():
    count = 3000
    inputs = [(k, k + 1) for k in range(count)]
    path = [(0, 1)] + [(count - 2 - k, 0) for k in range(count - 2)]  # the newest and the first
    ax = pictures.contraction_tree(path, inputs, [0, count], dict.fromkeys(range(count + 1), 2))
    assert parts(ax)[2][-1, 1] == count - 1 and not len(ax.get_xticks())


@pytest.mark.parametrize("inputs,output,path", [(["ab"], "ab", []), ([""], "", []),
                                                (["ab", "b"], "a", [(0, 1)])])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_small_and_empty_contractions_are_drawn(inputs, output, path, size):
    ax = pictures.contraction_tree(path, inputs, output, dict.fromkeys("ab", size))
    drawn.render(ax)


AB = (["ab", "bc"], "ac", {"a": 2, "b": 3, "c": 4})


@pytest.mark.parametrize("plan,network,options,reason,field", [
    ([(0, 1)], (), {}, "MISSING_FIELD", "inputs"),
    ([(0, 1)], ([], "", {}), {}, "MISSING_FIELD", "inputs"),
    ([(0, 1)], AB[:2], {}, "UNKNOWN_INDEX", "size_dict"),
    ([(0, 1)], (*AB[:2], {"a": 2, "b": -1, "c": 4}), {}, "BAD_PARAMETER", "size_dict"),
    ([(0, 1)], (*AB[:2], {"a": 2, "b": "x", "c": 4}), {}, "BAD_PARAMETER", "size_dict"),
    ([(0, 1)], (*AB[:2], {"a": 2, "b": None, "c": 4}), {}, "BAD_PARAMETER", "size_dict"),
    ([(0, 1)], (AB[0], "ax", AB[2]), {}, "UNKNOWN_INDEX", "output"),
    ([(0, 1)], AB, {"sliced": ["x"]}, "UNKNOWN_INDEX", "sliced"),
    ([(0, 2)], AB, {}, "BAD_PATH", "path[0]"),
    ([(0, 2)], AB, {"ssa": True}, "BAD_PATH", "path[0]"),
    ([(0, 0)], AB, {}, "BAD_PATH", "path[0]"),
    ([(0, -1)], AB, {}, "BAD_PATH", "path[0]"),
    ([(0, 0)], AB, {"ssa": True}, "BAD_PATH", "path[0]"),
    ([(0, 1), (0, 1)], AB, {"ssa": True}, "BAD_PATH", "path[1]"),
    ([(0, "b")], AB, {}, "BAD_PATH", "path[0]"),
    ([(0, None)], AB, {"ssa": True}, "BAD_PATH", "path[0]"),
    ([()], AB, {}, "BAD_PATH", "path[0]"),
    ([], AB, {}, "BAD_PATH", "path"),
    ([0, 1], AB, {}, "BAD_PARAMETER", "plan"),
    ("greedy", AB, {}, "BAD_PARAMETER", "plan"),
    (7, AB, {}, "BAD_PARAMETER", "plan"),
])
def test_what_is_wrong_is_said(plan, network, options, reason, field):
    with pytest.raises(tenon.InvalidRequest) as caught:
        pictures.contraction_tree(plan, *network, **options)
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert not pyplot.get_fignums()
