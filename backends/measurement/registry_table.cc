// The list of all measures.

#include "backends/measurement/registry.h"

namespace tenon::measurement {
namespace {

constexpr auto kInteger = ParameterType::kInteger;
constexpr auto kReal = ParameterType::kReal;
constexpr auto kString = ParameterType::kString;

ParameterInfo Neighbors(std::string range) {
  return {"k", kInteger, "20", std::move(range), "Number of nearest neighbours."};
}

ParameterInfo Sigma() {
  return {"sigma", kReal, "0.1", "0 < sigma",
          "Width of the Gaussian kernel on distances divided by the largest one."};
}

const char kUpToRows[] = "1 <= k <= n-1";
const char kBelowHalf[] = "1 <= k, 2k < n";
const char kUnit[] = "[0, 1]";
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
       .reference = "Venna and Kaski: Local multidimensional scaling, Neural Networks 19, 2006",
       .implemented = true},
      {.id = "mean_relative_rank_error",
       .alias = "mrre",
       .description = "One minus the mean relative change of the ranks of the neighbours of each "
                      "space in the other one; larger is better.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"mrre_false", "local_mrre_false", kUnit, "1"},
                   {"mrre_missing", "local_mrre_missing", kUnit, "1"}},
       .reference = "Lee and Verleysen: Nonlinear Dimensionality Reduction, Springer 2007",
       .implemented = true},
      {.id = "local_continuity_meta_criteria",
       .alias = "lcmc",
       .description = "Share of common neighbours in both spaces, less what chance gives.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"lcmc", "local_lcmc", "[-k/(n-1), 1-k/(n-1)]", "1-k/(n-1)"}},
       .reference = "Chen and Buja: Local multidimensional scaling for nonlinear dimension "
                    "reduction, JASA 104, 2009",
       .implemented = true},
      {.id = "neighborhood_hit",
       .alias = "nh",
       .description = "Share of the neighbours in the projection that have the point's own label.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"neighborhood_hit", "local_neighborhood_hit", kUnit, "1"}},
       .needs_labels = true,
       .needs_original = false,
       .reference = "Paulovich et al.: Least square projection, IEEE TVCG 14, 2008",
       .implemented = true},
      {.id = "neighbor_dissimilarity",
       .alias = "nd",
       .description = "Difference of the shared-neighbour graphs of both spaces.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"neighbor_dissimilarity", "", kNotNegative, "0"}},
       .reference = "Fu et al.: AtSNE, KDD 2019"},
      {.id = "class_aware_trustworthiness_continuity",
       .alias = "ca_tnc",
       .description =
           "Trustworthiness that counts only neighbours of other classes, continuity that "
           "counts only those of the same class.",
       .parameters = {Neighbors(kBelowHalf)},
       .outputs = {{"ca_trustworthiness", "local_ca_trustworthiness", kUnit, "1"},
                   {"ca_continuity", "local_ca_continuity", kUnit, "1"}},
       .needs_labels = true,
       .reference = "Colange et al.: Steering distortions to preserve classes and neighbors in "
                    "supervised dimensionality reduction, NeurIPS 2020"},
      {.id = "procrustes",
       .alias = "proc",
       .description = "How well the neighbourhoods of both spaces match after the best rotation.",
       .parameters = {Neighbors("2 <= k <= n-1")},
       .outputs = {{"procrustes", "", kNotNegative, "0"}},
       .reference = "Goldberg and Ritov: Local Procrustes for manifold embedding, Machine Learning "
                    "77, 2009"},
  };
}

std::vector<MeasureInfo> ClusterMeasures() {
  return {
      {.id = "steadiness_cohesiveness",
       .alias = "snc",
       .description = "Distortion of relations between clusters, found by random walks.",
       .parameters = {{"iteration", kInteger, "150", "1 <= iteration",
                       "Random walks per direction."},
                      {"walk_num_ratio", kReal, "0.3", "0 < walk_num_ratio",
                       "Visits of a walk, as a share of n."},
                      {"alpha", kReal, "0.1", "0 < alpha", "Offset of similarities."},
                      {"k", kInteger, "", "1 <= k <= n-1",
                       "Number of nearest neighbours; floor(sqrt(n)) when absent."},
                      {"clustering_strategy", kString, "dbscan", "dbscan, kmeans or <m>-means",
                       "How walks are split into clusters."},
                      {"random_state", kInteger, "", "0 <= random_state < 2^32", "Seed."}},
       .outputs = {{"steadiness", "local_steadiness", kUnit, "1"},
                   {"cohesiveness", "local_cohesiveness", kUnit, "1"}},
       .deterministic = false,
       .reference = "Jeon et al.: Measuring and explaining the inter-cluster reliability of "
                    "multidimensional projections, IEEE TVCG 28, 2022"},
      {.id = "distance_consistency",
       .alias = "dsc",
       .description =
           "Share of points whose nearest class centroid in the projection is their own.",
       .outputs = {{"distance_consistency", "", kUnit, "1"}},
       .needs_labels = true,
       .needs_original = false,
       .reference = "Sips et al.: Selecting good views of high-dimensional data using class "
                    "consistency, CGF 28, 2009"},
      {.id = "internal_validation_measure",
       .alias = "ivm",
       .description = "Clustering validity of the labels in the projection.",
       .parameters = {{"measure", kString, "silhouette",
                       "silhouette, calinski_harabasz or davies_bouldin", "The validity index."}},
       .outputs = {{"silhouette", "", "[-1, 1]", "1"},
                   {"calinski_harabasz", "", kNotNegative, "inf"},
                   {"davies_bouldin", "", kNotNegative, "0"}},
       .needs_labels = true,
       .needs_original = false,
       .reference = "Joia et al.: Local affine multidimensional projection, IEEE TVCG 17, 2011"},
      {.id = "clustering_and_external_validation_measure",
       .alias = "c_evm",
       .description = "Agreement of the labels with a clustering of the projection.",
       .parameters = {{"measure", kString, "arand", "arand, ami, nmi or vmeasure",
                       "The index of agreement."},
                      {"clustering", kString, "kmeans", "kmeans or dbscan", "The clustering."}},
       .outputs = {{"{clustering}_{measure}", "", "[-1, 1]", "1"}},
       .needs_labels = true,
       .needs_original = false,
       .reference =
           "Xiang et al.: A comparison for dimensionality reduction methods of single-cell "
           "RNA-seq data, Frontiers in Genetics 12, 2021"},
      {.id = "label_trustworthiness_and_continuity",
       .alias = "l_tnc",
       .description = "Change of the separation of each pair of classes.",
       .parameters = {{"cvm", kString, "dsc", "dsc or ch_btw", "Separation of two classes."}},
       .outputs = {{"label_trustworthiness", "", kUnit, "1"}, {"label_continuity", "", kUnit, "1"}},
       .needs_labels = true,
       .deterministic = false,
       .reference = "Jeon et al.: Classes are not clusters, IEEE TVCG 30, 2024"},
      {.id = "class_angular_distortion_index",
       .alias = "cadi",
       .description = "Change of angles between a point of one class and two of another.",
       .parameters = {{"n_triplets", kInteger, "0", "0 <= n_triplets",
                       "Triplets drawn; 0 means 10 n."},
                      {"random_seed", kInteger, "", "0 <= random_seed", "Seed."}},
       .outputs = {{"class_angular_distortion_index", "", kUnit, "0"}},
       .needs_labels = true,
       .deterministic = false},
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
           "hypothesis, Psychometrika 29, 1964",
       .implemented = true},
      {.id = "scale_normalized_stress",
       .alias = "sn_stress",
       .description = "Stress with the projection scaled so that it is smallest.",
       .outputs = {{"scale_normalized_stress", "", kUnit, "0"}},
       .reference = "Smelser et al.: Normalized stress is not normalized, BELIV 2024",
       .implemented = true},
      {.id = "non_metric_stress",
       .alias = "nm_stress",
       .description = "Stress against the best non-decreasing fit of the projected distances over "
                      "the original ones.",
       .outputs = {{"non_metric_stress", "", kUnit, "0"}},
       .reference =
           "Kruskal: Nonmetric multidimensional scaling: a numerical method, Psychometrika "
           "29, 1964",
       .implemented = true},
      {.id = "kl_divergence",
       .alias = "kl_div",
       .description = "Kullback-Leibler divergence of the Gaussian densities of both spaces.",
       .parameters = {Sigma()},
       .outputs = {{"kl_divergence", "", kNotNegative, "0"}},
       .reference = "Hinton and Roweis: Stochastic neighbor embedding, NIPS 2002",
       .implemented = true},
      {.id = "distance_to_measure",
       .alias = "dtm",
       .description = "Sum of the absolute differences of the Gaussian densities of both spaces.",
       .parameters = {Sigma()},
       .outputs = {{"distance_to_measure", "", "[0, 2]", "0"}},
       .reference = "Chazal et al.: Geometric inference for probability measures, FoCM 11, 2011",
       .implemented = true},
      {.id = "topographic_product",
       .alias = "topo",
       .description = "Mean log ratio of neighbour distances of both spaces.",
       .parameters = {Neighbors(kUpToRows)},
       .outputs = {{"topographic_product", "", "(-inf, inf)", "0"}},
       .reference = "Bauer and Pawelzik: Quantifying the neighborhood preservation of "
                    "self-organizing feature maps, IEEE TNN 3, 1992"},
      {.id = "pearson_r",
       .alias = "pr",
       .description = "Pearson correlation of the distances of all pairs.",
       .outputs = {{"pearson_r", "", "[-1, 1]", "1"}},
       .reference = "Geng et al.: Supervised nonlinear dimensionality reduction for visualization "
                    "and classification, IEEE TSMC-B 35, 2005",
       .implemented = true},
      {.id = "spearman_rho",
       .alias = "srho",
       .description = "Rank correlation of the distances of all pairs i < j, ties share their mean "
                      "rank.",
       .outputs = {{"spearman_rho", "", "[-1, 1]", "1"}},
       .reference = "Sidney: Nonparametric statistics for the behavioral sciences, JNMD 125, 1957",
       .implemented = true},
      {.id = "gap_index",
       .alias = "gi",
       .description = "Change of the relative areas of the triangles of the projection's Delaunay "
                      "triangulation.",
       .parameters = {{"metric", kString, "euclidean", "euclidean or precomputed",
                       "Distance in the original space."}},
       .outputs = {{"gap_index", "", kUnit, "0"}}},
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
