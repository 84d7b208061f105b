"""Wrong input: the classes of errors that zadu raises, and the same moment."""

import warnings

import numpy as np
import pytest

import tenon
from zadu_peer import zadu

NUMBERS = np.random.default_rng(7)
HD = NUMBERS.standard_normal((40, 4))
LD = HD[:, :2] + 0.2 * NUMBERS.standard_normal((40, 2))
LABELS = np.arange(40) % 3
KINDS = (zadu.EmbeddingExecutionError, tenon.EmbeddingExecutionError, MemoryError, ImportError,
         ValueError, TypeError, NotImplementedError, RuntimeError)


def kind_of(error):
    """Its class among those that programs catch; zadu's own ones by name."""
    kind = next(kind for kind in KINDS if isinstance(error, kind))
    return kind.__name__


def outcome(package, spec_list, hd, ld, label, options, config):
    """Where it fails and how; None: it does not."""
    stage = "settings"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if config is not None:
                options = {**options, "execution": package.ExecutionConfig(**config)}
            stage = "constructor"
            runner = package.ZADU(spec_list, hd, **options)
            stage = "measure"
            runner.measure(ld, label)
    except Exception as error:
        return stage, kind_of(error)
    return None


@pytest.fixture(scope="module", autouse=True)
def default_client(client):
    tenon.set_default_client(client)
    yield
    tenon.set_default_client(None)


def check(spec_list=({"id": "tnc", "params": {"k": 5}},), hd=HD, ld=LD, label=None, options=None,
          config=None, fails=True):
    spec_list = list(spec_list) if isinstance(spec_list, tuple) else spec_list
    theirs = outcome(zadu, spec_list, hd, ld, label, options or {}, config)
    assert outcome(tenon, spec_list, hd, ld, label, options or {}, config) == theirs
    assert (theirs is not None) == fails


@pytest.mark.parametrize("hd", [
    HD[:, 0], HD[None], HD[:1], HD[:, :0], HD[:0], np.where(HD > 2, np.nan, HD),
    np.where(HD > 2, np.inf, HD), HD.astype(str), HD.astype(object), None, 3.0, "abc",
    [[1, 2], [3]], [], {}, np.array([["a", 1]] * 40, object)])
def test_data_sets(hd):
    check(hd=hd)


@pytest.mark.parametrize("ld", [
    LD[:, 0], LD[None], LD[:39], np.vstack([LD, LD]), LD[:1], LD[:, :0],
    np.where(LD > 1, np.nan, LD), np.where(LD > 1, -np.inf, LD), LD.astype(str), LD.astype(object),
    None, "abc", [[1, 2], [3]], []])
def test_projections(ld):
    check(ld=ld)


@pytest.mark.parametrize("ld", [LD.tolist(), LD.astype(np.float16), LD > 0, np.asfortranarray(LD),
                                LD.astype(">f8"), LD[:, :1], np.hstack([LD] * 9)])
def test_projections_that_are_fine(ld):
    check(ld=ld, fails=False)


@pytest.mark.parametrize("label", [
    None, LABELS[:39], LABELS[:, None], np.where(LABELS, np.nan, 1.0), 5, [[1]] * 40,
    np.array([1, "a"] * 20, object), np.array([None] * 40), np.zeros(40), list("ab") * 3])
@pytest.mark.parametrize("name", ["ca_tnc", "dsc"])
def test_labels(name, label):
    check([{"id": name, "params": {"k": 5} if name == "ca_tnc" else {}}], label=label)


@pytest.mark.parametrize("name,label,fails", [
    ("nh", np.zeros(40), False), ("nh", LABELS.astype(bool), False), ("nh", list("ab") * 20, False),
    ("l_tnc", np.zeros(40), True), ("ivm", np.zeros(40), True), ("ivm", np.arange(40), True),
    ("cadi", np.arange(40), True), ("cadi", np.zeros(40), True), ("c_evm", np.zeros(40), True),
    ("dsc", np.arange(40), False)])
def test_classes(name, label, fails):
    check([{"id": name}], label=label, fails=fails)


def test_labels_that_nothing_needs_are_not_looked_at():
    check(label=object(), fails=False)
    check(label=[1, 2], fails=False)


@pytest.mark.parametrize("spec_list", [
    "tnc", b"tnc", {"id": "tnc"}, 3, None, iter([{"id": "tnc"}]), ["tnc"], [("tnc", {})], [None],
    [{}], [{"params": {}}], [{"id": "beauty"}], [{"id": "TNC"}], [{"id": 3}], [{"id": None}],
    [{"id": "tnc", "params": 3}], [{"id": "tnc", "params": [("k", 3)]}],
    [{"id": "tnc", "params": {"j": 3}}], [{"id": "stress", "params": {"k": 3}}],
    [{"id": "nh", "params": {"label": LABELS}}],
    [{"id": "tnc"}, {"id": "tnc", "params": {"k": 0}}]])
def test_specifications(spec_list):
    check(spec_list)


@pytest.mark.parametrize("spec_list", [
    [], ({"id": "tnc", "params": {"k": 5}},), [{"id": "stress", "params": None, "more": 1}],
    [{"id": "tnc", "params": {"k": np.int32(5)}}]])
def test_specifications_that_are_fine(spec_list):
    check(spec_list, fails=False)


@pytest.mark.parametrize("k", [0, -1, 20, 40, 1000, 2**40, 5.0, "5", True, np.float64(5), [5]])
@pytest.mark.parametrize("name", ["tnc", "mrre", "lcmc", "nh", "ca_tnc", "nd", "topo", "proc",
                                  "snc"])
def test_neighbours(name, k):
    fails = k != 20 or isinstance(k, bool) or name in ("tnc", "ca_tnc")
    params = {"k": k, **({"random_state": 1, "iteration": 1} if name == "snc" else {})}
    check([{"id": name, "params": params}], label=LABELS, fails=fails)


@pytest.mark.parametrize("name,params", [
    ("dtm", {"sigma": 0}), ("dtm", {"sigma": -1}), ("kl_div", {"sigma": np.nan}),
    ("kl_div", {"sigma": np.inf}), ("dtm", {"sigma": "1"}), ("dtm", {"sigma": True}),
    ("dtm", {"sigma": 1j}), ("snc", {"iteration": 0}), ("snc", {"iteration": 2.0}),
    ("snc", {"iteration": True}), ("snc", {"alpha": 0}), ("snc", {"alpha": "x"}),
    ("snc", {"walk_num_ratio": -0.1}), ("snc", {"n_jobs": 0}), ("snc", {"n_jobs": "2"}),
    ("snc", {"clustering_strategy": "beauty"}), ("snc", {"clustering_strategy": "0-means"}),
    ("snc", {"random_state": -3}), ("ivm", {"measure": "beauty"}), ("c_evm", {"measure": "beauty"}),
    ("c_evm", {"clustering": "beauty"}), ("c_evm", {"clustering_args": {"beauty": 1}}),
    ("c_evm", {"clustering_args": {"n_clusters": 0}}),
    ("c_evm", {"clustering_args": {"n_clusters": 41}}), ("l_tnc", {"cvm": "beauty"}),
    ("c_evm", {"clustering": "dbscan", "clustering_args": {"eps": -1}}),
    ("cadi", {"n_triplets": -1}), ("cadi", {"n_triplets": 1.5}), ("cadi", {"random_seed": -1}),
    ("cadi", {"random_seed": "x"}), ("gi", {"metric": "beauty"}), ("gi", {"metric": 3}),
    ("gi", {"metric": "precomputed"})])
def test_other_parameters(name, params):
    check([{"id": name, "params": params}], label=LABELS)


SAME = np.ones((40, 4))


@pytest.mark.parametrize("name,hd,ld,fails", [
    ("dtm", SAME, LD, True), ("dtm", HD, SAME, True), ("kl_div", SAME, LD, True),
    ("stress", SAME, LD, True), ("stress", HD, SAME, False), ("sn_stress", SAME, LD, True),
    ("sn_stress", HD, SAME, True), ("nm_stress", SAME, LD, True), ("nm_stress", HD, SAME, True),
    ("pr", SAME, LD, True), ("pr", HD, SAME, True), ("srho", SAME, LD, True),
    ("srho", HD, SAME, True), ("topo", SAME, LD, True), ("topo", HD, SAME, True),
    ("proc", SAME, LD, True), ("gi", HD, SAME[:, :2], True), ("gi", HD, HD[:, :3], True),
    ("gi", HD, np.outer(np.arange(40), [1, 2]), True), ("tnc", SAME, SAME, False)])
def test_scores_without_a_value(name, hd, ld, fails):
    params = {"k": 5} if name in ("tnc", "topo", "proc") else {}
    check([{"id": name, "params": params}], hd=hd, ld=ld, fails=fails)


@pytest.mark.parametrize("options", [
    {"max_memory_bytes": 0}, {"max_memory_bytes": -5}, {"max_memory_bytes": 1.5},
    {"max_memory_bytes": "4GiB"}, {"max_memory_bytes": True}, {"max_memory_bytes": 10},
    {"execution": {}}, {"execution": "numpy"}])
def test_options_of_runners(options):
    check(options=options)


CONFIGS = [
    {"backend": 3}, {"backend": "NumPy"}, {"backend": "no such"}, {"backend": "9lives"},
    {"backend": ""}, {"backend": "nobody"}, {"backend": "nobody", "device": ""},
    {"backend": "nobody", "dtype": ""}, {"device": "gpu"}, {"device": "cpu"}, {"device": 0},
    {"device": "CPU"}, {"dtype": "float32"}, {"dtype": "float64"}, {"dtype": np.float64},
    {"backend": "torch"}, {"backend": "torch", "dtype": "float16"},
    {"backend": "torch", "device": "mps", "dtype": "float64"},
    {"backend": "torch", "device": "tpu", "dtype": "float64"}, {"backend": "mlx"},
    {"backend": "mlx", "device": "gpu", "dtype": "float64"}, {"backend": "mlx", "dtype": "float32"},
    {"backend": "mlx", "device": "cuda", "dtype": "float32"},
    {"memory_budget": "4GiB"}, {"memory_budget": "1 mb"}, {"memory_budget": "1.5MiB"},
    {"memory_budget": 10**7}, {"memory_budget": np.int64(10**7)}, {"memory_budget": 0},
    {"memory_budget": -1}, {"memory_budget": "0B"}, {"memory_budget": "4 GiBs"},
    {"memory_budget": "many"}, {"memory_budget": ""}, {"memory_budget": 1e9},
    {"memory_budget": True}, {"memory_budget": [1]}, {"memory_budget": 10},
    {"embedding_workers": 0}, {"embedding_workers": 2}, {"embedding_workers": 2.0},
    {"embedding_workers": True}, {"embedding_workers": "2"}, {"pair_order_strategy": "MEMORY"},
    {"pair_order_strategy": "beauty"}, {"pair_order_strategy": 1},
    {"pair_order_strategy": "external"}, {"temporary_directory": "x"},
    {"temporary_directory": 3, "temporary_budget": 10**6}, {"temporary_budget": "x"},
    {"temporary_budget": 0}, {"pair_order_strategy": "external", "temporary_budget": "8MiB"}]


@pytest.mark.parametrize("config", CONFIGS)
def test_settings(config):
    theirs = outcome(zadu, [{"id": "srho"}], HD, LD, None, {}, config)
    assert outcome(tenon, [{"id": "srho"}], HD, LD, None, {}, config) == theirs


def test_settings_are_told_alike():
    for config in CONFIGS:
        try:
            theirs = zadu.ExecutionConfig(**config)
        except Exception:
            continue
        mine = tenon.ExecutionConfig(**config)
        for name in ("backend", "device", "dtype", "memory_budget_bytes", "temporary_budget_bytes",
                     "embedding_workers", "pair_order_strategy", "temporary_directory",
                     "resolved_backend", "resolved_device", "resolved_dtype"):
            assert getattr(mine, name) == getattr(theirs, name), (config, name)


@pytest.mark.parametrize("config", [{"rng": "dice"}, {"threads": 0}])
def test_settings_of_ones_own(config):
    with pytest.raises(ValueError):
        tenon.ExecutionConfig(**config)
    with pytest.raises(TypeError):
        tenon.ExecutionConfig(threads=1.5)


def test_settings_do_not_change():
    config = tenon.ExecutionConfig()
    with pytest.raises(AttributeError):
        config.backend = "torch"
    assert config == tenon.ExecutionConfig() and hash(config) == hash(tenon.ExecutionConfig())


@pytest.mark.parametrize("config", [
    {"backend": "mlx", "dtype": "float32"}, {"backend": "mps"},
    {"backend": "torch", "device": "mps", "dtype": "float32"}])
def test_apples_devices_are_refused_with_the_choices(config):
    config = tenon.ExecutionConfig(**config)
    with pytest.raises(ImportError, match="numpy.*torch.*providers"):
        tenon.ZADU([{"id": "stress"}], HD, execution=config)


@pytest.mark.parametrize("config,provider", [
    ({}, "cpu"), ({"backend": "numpy"}, "cpu"), ({"backend": "reference"}, "reference"),
    ({"backend": "torch", "device": "cpu", "dtype": "float64"}, "cpu"),
    ({"backend": "torch", "dtype": "float32"}, "cpu"), ({"backend": "cpu"}, "cpu")])
def test_backends_name_providers(config, provider):
    """On a server without a GPU."""
    runner = tenon.ZADU([{"id": "lcmc"}], HD, execution=tenon.ExecutionConfig(**config))
    assert runner.measure(LD) == tenon.ZADU([{"id": "lcmc"}], HD).measure(LD)
    assert runner.last_run_info["backend"] == provider


@pytest.mark.parametrize("config", [
    {"backend": "torch", "device": "cuda", "dtype": "float32"}, {"backend": "cuda"},
    {"backend": "cuda:0"}])
def test_a_gpu_that_is_not_there_is_an_error(config):
    with pytest.raises(RuntimeError, match="cuda:0") as caught:
        tenon.ZADU([{"id": "lcmc"}], HD, execution=tenon.ExecutionConfig(**config))
    assert caught.value.reason == "NO_DEVICE"


def test_a_gpu_that_is_there_is_taken():
    from tenon.zadu._config import provider_of
    for config in ({"backend": "torch", "dtype": "float32"}, {"backend": "cuda"},
                   {"backend": "torch", "device": "cuda", "dtype": "float64"}):
        assert provider_of(tenon.ExecutionConfig(**config), lambda name: True) == "cuda:0"
