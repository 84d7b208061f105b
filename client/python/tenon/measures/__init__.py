"""The measures one by one, as zadu's modules: ``from tenon.measures import stress``, then
``stress.measure(orig, emb)``.

Every module has a function `measure` with zadu's arguments:

  orig: the data set, n rows.
  emb: its projection, n rows.
  label: the class of each row.
  k: number of neighbours.
  return_local: whether the score of every row is returned too.
  working_memory_bytes: is not needed; the server plans its own memory.
  knn_info, knn_emb_info, knn_ranking_info, snn_info, rank_comparisons, neighbor_statistics,
    distance_matrices, densities, pair_statistics, ordered_pair_statistics,
    topographic_product_statistics: None; the server builds what it needs (NotImplementedError).

Scores come as dicts by key, float64
arrays by row beside them where ``return_local`` asks for it. For several measures, or several
projections, `tenon.ZADU` and `tenon.measure` share what they have in common.
"""

from tenon.measures import (class_angular_distortion_index, class_aware_trustworthiness_continuity,
                            clustering_and_external_validation_measure, distance_consistency,
                            distance_to_measure, gap_index, internal_validation_measure,
                            kl_divergence, label_trustworthiness_and_continuity,
                            local_continuity_meta_criteria, mean_relative_rank_error,
                            neighbor_dissimilarity, neighborhood_hit, non_metric_stress, pearson_r,
                            procrustes, scale_normalized_stress, spearman_rho,
                            steadiness_cohesiveness, stress, topographic_product,
                            trustworthiness_continuity)

__all__ = ["class_angular_distortion_index", "class_aware_trustworthiness_continuity",
           "clustering_and_external_validation_measure", "distance_consistency",
           "distance_to_measure", "gap_index", "internal_validation_measure", "kl_divergence",
           "label_trustworthiness_and_continuity", "local_continuity_meta_criteria",
           "mean_relative_rank_error", "neighbor_dissimilarity", "neighborhood_hit",
           "non_metric_stress", "pearson_r", "procrustes", "scale_normalized_stress",
           "spearman_rho", "steadiness_cohesiveness", "stress", "topographic_product",
           "trustworthiness_continuity"]
