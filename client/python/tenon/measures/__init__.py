"""The measures one by one, as zadu's modules: ``from tenon.measures import stress``, then
``stress.measure(orig, emb)``.

Every module has a function `measure` with zadu's arguments. Scores come as dicts by key, float64
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
