// The list of all measures.

#include "absl/strings/str_join.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/row_metric.h"

namespace tenon::measurement {
namespace {

constexpr auto kInteger = ParameterType::kInteger;
constexpr auto kReal = ParameterType::kReal;
constexpr auto kString = ParameterType::kString;

ParameterInfo Neighbors(ParameterRule rule) {
  const bool below_half = rule == ParameterRule::kNeighborsBelowHalf;
  return {.name = "k",
          .type = kInteger,
          .default_value = "20",
          .range = below_half ? "1 <= k, 2k < n" : "1 <= k <= n-1",
          .description = "Number of nearest neighbours.",
          .rule = rule};
}

// One neighbour less its mean is no shape.
ParameterInfo AtLeastTwoNeighbors() {
  ParameterInfo k = Neighbors(ParameterRule::kNeighbors);
  k.range = "2 <= k <= n-1; k = 1 is UNDEFINED_SCORE";
  return k;
}

ParameterInfo Sigma() {
  return {.name = "sigma",
          .type = kReal,
          .default_value = "0.1",
          .range = "0 < sigma",
          .description = "Width of the Gaussian kernel on distances divided by the largest one.",
          .rule = ParameterRule::kPositive};
}

// One of several texts; the first is the default.
ParameterInfo Choice(std::string name, const std::vector<std::string>& choices,
                     std::string description) {
  return {.name = std::move(name),
          .type = kString,
          .default_value = choices.front(),
          .range = absl::StrJoin(choices, ", "),
          .description = std::move(description),
          .choices = choices};
}

ParameterInfo Arithmetic() {
  return Choice("arithmetic", {"input", "float64"},
                "Element type of the computation: that of the input, as the reference has it "
                "(float32 input in float32, everything else in float64), or float64.");
}

ParameterInfo When(ParameterInfo parameter, std::string name, std::string value) {
  parameter.condition_name = std::move(name);
  parameter.condition_value = std::move(value);
  return parameter;
}

// Generator and seed of random numbers; `legacy` names what the generator "numpy" stands for.
std::vector<ParameterInfo> Random(const std::string& prefix, const std::string& seed,
                                  const std::string& legacy) {
  return {Choice(prefix + "random.generator", {"counter", "numpy"},
                 "Where random numbers come from: counter is Philox 4x32-10, keyed by the seed and "
                 "addressed by position, the same for any number of threads; numpy is " +
                     legacy + ", drawn in the order of the reference."),
          {.name = prefix + "random.seed",
           .type = kInteger,
           .default_value = seed,
           .range = "0 <= seed < 2^64; below 2^32 with RandomState",
           .description = "Seed. Absent: one is drawn, told with the scores, and used for every "
                          "projection of the call."}};
}

std::vector<ParameterInfo> Join(std::vector<ParameterInfo> first,
                                const std::vector<ParameterInfo>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The functions of two rows of scipy.spatial.distance.
std::vector<std::string> RowMetrics() { return {RowMetricNames().begin(), RowMetricNames().end()}; }

std::vector<std::string> GapMetrics() {
  std::vector<std::string> metrics = RowMetrics();
  metrics.push_back("precomputed");
  return metrics;
}

constexpr auto kUpToRows = ParameterRule::kNeighbors;
constexpr auto kBelowHalf = ParameterRule::kNeighborsBelowHalf;
const char kUnit[] = "[0, 1]";
const char kUpToOne[] = "(-inf, 1]";
const char kNotNegative[] = "[0, inf)";

std::vector<MeasureInfo> LocalMeasures() {
  return {
      {.id = "trustworthiness_continuity",
       .alias = "tnc",
       .description = "How far points that are neighbours in only one of the spaces are from being "
                      "neighbours in the other, by rank.",
       .parameters = {Neighbors(kBelowHalf)},
       .outputs = {{"trustworthiness", "local_trustworthiness", kUnit, "1"},
                   {"continuity", "local_continuity", kUnit, "1"}},
       .reference = "Venna and Kaski: Local multidimensional scaling, Neural Networks 19, 2006"},
      {.id = "mean_relative_rank_error",
       .alias = "mrre",
       .description = "One minus the mean relative change of the ranks of the neighbours of each "
                      "space in the other one; larger is better.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"mrre_false", "local_mrre_false", kUnit, "1"},
                   {"mrre_missing", "local_mrre_missing", kUnit, "1"}},
       .reference = "Lee and Verleysen: Nonlinear Dimensionality Reduction, Springer 2007"},
      {.id = "local_continuity_meta_criteria",
       .alias = "lcmc",
       .description = "Share of common neighbours in both spaces, less what chance gives.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"lcmc", "local_lcmc", "[-k/(n-1), 1-k/(n-1)]", "1-k/(n-1)"}},
       .reference = "Chen and Buja: Local multidimensional scaling for nonlinear dimension "
                    "reduction, JASA 104, 2009"},
      {.id = "neighborhood_hit",
       .alias = "nh",
       .description = "Share of the neighbours in the projection that have the point's own label.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"neighborhood_hit", "local_neighborhood_hit", kUnit, "1"}},
       .needs_labels = true,
       .needs_original = false,
       .reference = "Paulovich et al.: Least square projection, IEEE TVCG 14, 2008"},
      {.id = "neighbor_dissimilarity",
       .alias = "nd",
       .description =
           "Difference of the shared-neighbour graphs of both spaces: the larger root of the sum "
           "of squares of its positive and of its negative entries, divided by k. Rows are "
           "adjacent if one is a neighbour of the other, each pair of rows counts in both "
           "orders, and nothing is divided by the number of rows, so that the score grows with "
           "it.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"neighbor_dissimilarity", "", kNotNegative, "0"}},
       .reference = "Fu et al.: AtSNE, KDD 2019"},
      {.id = "class_aware_trustworthiness_continuity",
       .alias = "ca_tnc",
       .description =
           "Trustworthiness that counts only neighbours of other classes, continuity that "
           "counts only those of the same class; both keep the scale of tnc.",
       .parameters = {Neighbors(kBelowHalf)},
       .outputs = {{"ca_trustworthiness", "local_ca_trustworthiness", kUnit, "1"},
                   {"ca_continuity", "local_ca_continuity", kUnit, "1"}},
       .needs_labels = true,
       .reference = "Colange et al.: Steering distortions to preserve classes and neighbors in "
                    "supervised dimensionality reduction, NeurIPS 2020"},
      {.id = "procrustes",
       .alias = "proc",
       .description =
           "How well the neighbourhoods of both spaces match after the best rotation or "
           "reflection: the mean residual sum of squares, as a share of that of the "
           "neighbourhood in the data set. The row itself is not part of its neighbourhood, "
           "nothing is scaled, and the score depends on the scale of the projection. As "
           "published, every neighbour in the data set is paired with its own image (pairing "
           "identity); the reference implementation (zadu) and the default pair the r-th "
           "neighbours of both spaces. Where the projection has more columns than the data set "
           "and the product of the neighbourhoods has not full rank (always for k <= the "
           "columns of the data set), the best rotation is not determined and with it the score: "
           "the directions of the projection that nothing corresponds to are left out here, "
           "while the reference counts some that its decomposition happens to choose.",
       .parameters = {AtLeastTwoNeighbors(),
                      Choice("pairing", {"rank", "identity"},
                             "Which rows are paired: the r-th neighbour of both spaces, as the "
                             "reference does, or every neighbour in the data set with its own "
                             "image, as published.")},
       .outputs = {{"procrustes", "", kNotNegative, "0"}},
       .reference = "Goldberg and Ritov: Local Procrustes for manifold embedding, Machine Learning "
                    "77, 2009"},
  };
}

std::vector<ParameterInfo> ClusteringParameters() {
  const std::string clustering = "clustering";
  std::vector<ParameterInfo> parameters = {
      Choice("measure", {"arand", "ami", "nmi", "vmeasure"},
             "The index of agreement, by scikit-learn's definition."),
      Choice(clustering, {"kmeans", "dbscan"},
             "The clustering; noise of dbscan counts as one more cluster."),
      When({"kmeans.n_clusters", kInteger, "", "1 <= n_clusters <= n",
            "Clusters; the number of classes when absent.", ParameterRule::kUpToRows},
           clustering, "kmeans"),
      When({"kmeans.n_init", kInteger, "", "1 <= n_init",
            "Runs, of which the best is kept; 1 with plus_plus, 10 with random when absent.",
            ParameterRule::kAtLeastOne},
           clustering, "kmeans"),
      When(Choice("kmeans.init", {"plus_plus", "random"}, "How the first centres are chosen."),
           clustering, "kmeans"),
      When({"kmeans.max_iter", kInteger, "300", "1 <= max_iter", "Iterations of a run at most.",
            ParameterRule::kAtLeastOne},
           clustering, "kmeans"),
      When({"kmeans.tol", kReal, "0.0001", "0 <= tol",
            "Change of the centres that ends a run, relative to the mean variance of the columns.",
            ParameterRule::kNotNegative},
           clustering, "kmeans")};
  for (ParameterInfo& random : Random("kmeans.", "0", "RandomState(seed)")) {
    if (random.name == "kmeans.random.generator") {
      random.description =
          "Whichever is named, random numbers come from Philox 4x32-10: the k-means of "
          "scikit-learn "
          "is not reproduced draw for draw.";
    }
    parameters.push_back(When(std::move(random), clustering, "kmeans"));
  }
  parameters.push_back(When({"dbscan.eps", kReal, "0.5", "0 < eps", "Radius of a neighbourhood.",
                             ParameterRule::kPositive},
                            clustering, "dbscan"));
  parameters.push_back(When({"dbscan.min_samples", kInteger, "5", "1 <= min_samples",
                             "Points within the radius that make a core point, itself included.",
                             ParameterRule::kAtLeastOne},
                            clustering, "dbscan"));
  parameters.push_back(
      When(Choice("dbscan.metric", RowMetrics(), "Distance of two rows."), clustering, "dbscan"));
  parameters.push_back(When({"dbscan.minkowski_p", kReal, "2", "1 <= minkowski_p",
                             "Order of the Minkowski distance.", ParameterRule::kAtLeastOne},
                            "dbscan.metric", "minkowski"));
  parameters.push_back(Arithmetic());
  return parameters;
}

std::vector<ParameterInfo> LabelParameters() {
  std::vector<ParameterInfo> parameters = {
      Choice("cvm", {"dsc", "ch_btw"}, "Separation of two classes."),
      When({"rescale_dsc", ParameterType::kBool, "false", "true or false",
            "Distance consistency from [0, 1] to [-1, 1], as published; the reference leaves it."},
           "cvm", "dsc"),
      Arithmetic()};
  for (ParameterInfo& random : Random("", "", "RandomState(seed)")) {
    parameters.push_back(When(std::move(random), "cvm", "ch_btw"));
  }
  return parameters;
}

std::vector<MeasureInfo> ClusterMeasures() {
  return {
      {.id = "steadiness_cohesiveness",
       .alias = "snc",
       .description =
           "Distortion of the relations between clusters. A walk in one space, drawn by the "
           "similarity of neighbours, is split into clusters in the other one. Every pair of "
           "clusters that is less similar there than in the walked space lowers the score "
           "(steadiness: walks in the projection; cohesiveness: walks in the data set), by the "
           "change of 1 / (mean similarity + alpha) over the largest change of two points, "
           "weighted "
           "by the product of the sizes. Similarities count shared neighbours by rank and are "
           "divided by the largest one of the space. Generator numpy reproduces the reference "
           "(zadu with hdbscan 0.8.37) for strategy dbscan: its draws, its order of members and "
           "its HDBSCAN, which links members without shared neighbours in the order they are "
           "reached. "
           "Equal dissimilarities are sorted as NumPy does without its AVX-512 sort "
           "(NPY_DISABLE_CPU_FEATURES), which leaves them in another order: on processors that "
           "have "
           "it the reference itself gives other scores. "
           "Generator counter takes members in ascending order and links along the minimum "
           "spanning "
           "tree, as later releases of hdbscan do; where many members share no neighbours both can "
           "differ much. k-means is the service's own and agrees with the reference's over seeds.",
       .parameters = Join(
           {{"iteration", kInteger, "150", "1 <= iteration", "Random walks per direction.",
             ParameterRule::kAtLeastOne},
            {"walk_num_ratio", kReal, "0.3", "0 < walk_num_ratio",
             "Visits of a walk, as a share of n.", ParameterRule::kPositive},
            {"alpha", kReal, "0.1", "0 < alpha", "Offset of similarities.",
             ParameterRule::kPositive},
            {"k", kInteger, "", "1 <= k <= n-1; floor(sqrt(n)) when absent",
             "Number of nearest neighbours.", ParameterRule::kNeighbors},
            Choice("clustering_strategy", {"dbscan", "kmeans"},
                   "How walks are split into clusters: HDBSCAN on dissimilarities, or k-means on "
                   "the points."),
            When({"cluster_count", kInteger, "", "1 <= cluster_count, capped at the walk's size",
                  "Clusters of k-means; max(2, floor(sqrt(size))) when absent.",
                  ParameterRule::kAtLeastOne},
                 "clustering_strategy", "kmeans"),
            {"workers", kInteger, "", "1 <= workers",
             "Iterations side by side; never changes a score.", ParameterRule::kAtLeastOne},
            Choice("local_weight", {"crossed", "own"},
                   "Which global score weights the local ones: the other one's, as the reference "
                   "does, or its own.")},
           Random("", "", "RandomState(seed)")),
       .outputs = {{"steadiness", "local_steadiness", kUnit, "1", kUpToOne},
                   {"cohesiveness", "local_cohesiveness", kUnit, "1", kUpToOne}},
       .deterministic = false,
       .reference = "Jeon et al.: Measuring and explaining the inter-cluster reliability of "
                    "multidimensional projections, IEEE TVCG 28, 2022"},
      {.id = "distance_consistency",
       .alias = "dsc",
       .description = "Share of points whose nearest class centroid in the projection is their "
                      "own; of equally "
                      "near centroids the one of the first class in sort order counts.",
       .parameters = {Arithmetic()},
       .outputs = {{"distance_consistency", "", kUnit, "1"}},
       .needs_labels = true,
       .needs_original = false,
       .reference = "Sips et al.: Selecting good views of high-dimensional data using class "
                    "consistency, CGF 28, 2009"},
      {.id = "internal_validation_measure",
       .alias = "ivm",
       .description =
           "Validity of the classes as clusters of the projection, by the definitions of "
           "scikit-learn: silhouette (0 for a row alone in its class), Calinski-Harabasz (1 "
           "without "
           "dispersion within classes) or Davies-Bouldin (0 where all classes or all centroids "
           "coincide to 1e-8). Only the score of the chosen measure is returned.",
       .parameters = {Choice("measure", {"silhouette", "calinski_harabasz", "davies_bouldin"},
                             "The validity index, by scikit-learn's definition."),
                      Arithmetic()},
       .outputs = {{"silhouette", "", "[-1, 1]", "1"},
                   {"calinski_harabasz", "", kNotNegative, "inf"},
                   {"davies_bouldin", "", kNotNegative, "0"}},
       .needs_labels = true,
       .needs_original = false,
       .reference = "Joia et al.: Local affine multidimensional projection, IEEE TVCG 17, 2011"},
      {.id = "clustering_and_external_validation_measure",
       .alias = "c_evm",
       .description =
           "Agreement of the labels with a clustering of the projection: adjusted Rand index, "
           "adjusted or normalised mutual information (mean of entropies) or V-measure. dbscan "
           "gives the labels of scikit-learn unless a distance is eps up to rounding: the plain "
           "sum "
           "of squared differences (or of the metric's terms) is compared with that of eps here, "
           "which its trees and expanded squares may round the other way. k-means is our own, with "
           "scikit-learn's "
           "definition and "
           "defaults but other random numbers, whichever generator is named: scores agree with the "
           "reference (zadu) where the best clustering is clear. Clusters are found in float64 "
           "whatever arithmetic says.",
       .parameters = ClusteringParameters(),
       .outputs = {{"{clustering}_{measure}", "", "[-1, 1]", "1"}},
       .needs_labels = true,
       .needs_original = false,
       .reference =
           "Xiang et al.: A comparison for dimensionality reduction methods of single-cell "
           "RNA-seq data, Frontiers in Genetics 12, 2021"},
      {.id = "label_trustworthiness_and_continuity",
       .alias = "l_tnc",
       .description =
           "One minus the mean over all pairs of classes of the separation that is lost "
           "(trustworthiness) or won (continuity) in the projection. The reference (zadu) takes "
           "distance consistency in [0, 1], which is the default here; rescale_dsc = true is the "
           "published variant in [-1, 1], which counts every change twice. ch_btw compares with "
           "20 shuffles of the labels; the reference draws them from NumPy's global generator, "
           "random.generator = numpy with its seed gives the same ones.",
       .parameters = LabelParameters(),
       .outputs = {{"label_trustworthiness", "", kUnit, "1"}, {"label_continuity", "", kUnit, "1"}},
       .needs_labels = true,
       .deterministic = false,
       .reference = "Jeon et al.: Classes are not clusters, IEEE TVCG 30, 2024"},
      {.id = "class_angular_distortion_index",
       .alias = "cadi",
       .description =
           "Mean squared change, over 4, of the cosine of the angle at a point of one class "
           "between "
           "two points of another, over triplets drawn at random. random.generator = numpy draws "
           "those of the reference (zadu) with the same seed.",
       .parameters = Join({{"n_triplets", kInteger, "0", "0 <= n_triplets",
                            "Triplets drawn; 0 means 10 n.", ParameterRule::kNotNegative}},
                          Random("", "", "default_rng(seed)")),
       .outputs = {{"class_angular_distortion_index", "", kUnit, "0"}},
       .needs_labels = true,
       .deterministic = false,
       .reference = "Gunaratne, Kobourov and Miller: Class angular distortion index for "
                    "dimensionality reduction, EuroVis 2026"},
  };
}

std::vector<MeasureInfo> GlobalMeasures() {
  return {
      {.id = "stress",
       .alias = "stress",
       .description = "Root of the squared distance errors over the squared original distances.",
       .outputs = {{"stress", "", kNotNegative, "0"}},
       .reference =
           "Kruskal: Multidimensional scaling by optimizing goodness of fit to a nonmetric "
           "hypothesis, Psychometrika 29, 1964"},
      {.id = "scale_normalized_stress",
       .alias = "sn_stress",
       .description = "Stress with the projection scaled so that it is smallest.",
       .outputs = {{"scale_normalized_stress", "", kUnit, "0"}},
       .reference = "Smelser et al.: Normalized stress is not normalized, BELIV 2024"},
      {.id = "non_metric_stress",
       .alias = "nm_stress",
       .description = "Stress against the best non-decreasing fit of the projected distances over "
                      "the original ones.",
       .outputs = {{"non_metric_stress", "", kUnit, "0"}},
       .reference =
           "Kruskal: Nonmetric multidimensional scaling: a numerical method, Psychometrika "
           "29, 1964"},
      {.id = "kl_divergence",
       .alias = "kl_div",
       .description = "Kullback-Leibler divergence of the Gaussian densities of both spaces.",
       .parameters = {Sigma()},
       .outputs = {{"kl_divergence", "", kNotNegative, "0"}},
       .reference = "Hinton and Roweis: Stochastic neighbor embedding, NIPS 2002"},
      {.id = "distance_to_measure",
       .alias = "dtm",
       .description = "Sum of the absolute differences of the Gaussian densities of both spaces.",
       .parameters = {Sigma()},
       .outputs = {{"distance_to_measure", "", "[0, 2]", "0"}},
       .reference = "Chazal et al.: Geometric inference for probability measures, FoCM 11, 2011"},
      {.id = "topographic_product",
       .alias = "topo",
       .description =
           "Mean logarithm of the ratios of the distances to the neighbours of both spaces, "
           "measured in both spaces: 0 if the order of neighbours is the same. Not defined if a "
           "row coincides with one of its k neighbours in either space.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"topographic_product", "", "(-inf, inf)", "0"}},
       .reference = "Bauer and Pawelzik: Quantifying the neighborhood preservation of "
                    "self-organizing feature maps, IEEE TNN 3, 1992"},
      {.id = "pearson_r",
       .alias = "pr",
       .description = "Pearson correlation of the distances of all pairs.",
       .outputs = {{"pearson_r", "", "[-1, 1]", "1"}},
       .reference = "Geng et al.: Supervised nonlinear dimensionality reduction for visualization "
                    "and classification, IEEE TSMC-B 35, 2005"},
      {.id = "spearman_rho",
       .alias = "srho",
       .description = "Rank correlation of the distances of all pairs i < j, ties share their mean "
                      "rank.",
       .outputs = {{"spearman_rho", "", "[-1, 1]", "1"}},
       .reference = "Sidney: Nonparametric statistics for the behavioral sciences, JNMD 125, 1957"},
      {.id = "gap_index",
       .alias = "gi",
       .description =
           "Change of the relative areas of the triangles of the projection's Delaunay "
           "triangulation, weighted by the larger area. Needs two columns. The triangulation is "
           "Qhull's, so the split of points on one circle is that of SciPy; rows that coincide "
           "in the projection with another one are left out. Distances in the data set may "
           "follow any of the metrics whose triangles satisfy the triangle inequality.",
       .parameters = {Choice("metric", GapMetrics(),
                             "Distance in the original space, by the names of "
                             "scipy.spatial.distance."),
                      When({"minkowski_p", kReal, "2", "1 <= minkowski_p",
                            "Order of the Minkowski distance.", ParameterRule::kAtLeastOne},
                           "metric", "minkowski"),
                      When({"precomputed_handle", kString, "", "datasets/{sha256}",
                            "The stored n x n matrix of distances; empty: the data set is it."},
                           "metric", "precomputed")},
       .outputs = {{"gap_index", "", kUnit, "0"}},
       .reference =
           "Ros, Arleo and Paulovich: Measuring distortion in the empty regions of "
           "dimensionality reduction scatterplots with the gap index, arXiv 2607.28324, 2026"},
  };
}

}  // namespace

std::span<const MeasureInfo> AllMeasures() {
  static const std::vector<MeasureInfo>* const measures = [] {
    auto* all = new std::vector<MeasureInfo>(LocalMeasures());
    for (auto group : {ClusterMeasures(), GlobalMeasures()}) {
      all->insert(all->end(), group.begin(), group.end());
    }
    return all;
  }();
  return *measures;
}

}  // namespace tenon::measurement
