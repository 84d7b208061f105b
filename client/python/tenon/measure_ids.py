"""Names of the measures."""

from __future__ import annotations

import enum

from tenon.errors import InvalidRequest

__all__ = ["MEASURE", "full_id"]


class MEASURE(str, enum.Enum):
    """Every measure; the name in lower case is its alias, the value its full id."""

    TNC = "trustworthiness_continuity"
    MRRE = "mean_relative_rank_error"
    LCMC = "local_continuity_meta_criteria"
    NH = "neighborhood_hit"
    CA_TNC = "class_aware_trustworthiness_continuity"
    L_TNC = "label_trustworthiness_and_continuity"
    ND = "neighbor_dissimilarity"
    DTM = "distance_to_measure"
    KL_DIV = "kl_divergence"
    DSC = "distance_consistency"
    PR = "pearson_r"
    SRHO = "spearman_rho"
    IVM = "internal_validation_measure"
    C_EVM = "clustering_and_external_validation_measure"
    SNC = "steadiness_cohesiveness"
    TOPO = "topographic_product"
    PROC = "procrustes"
    STRESS = "stress"
    SN_STRESS = "scale_normalized_stress"
    NM_STRESS = "non_metric_stress"
    CADI = "class_angular_distortion_index"
    GI = "gap_index"

    def __str__(self) -> str:
        return self.value


ALIASES = {measure.name.lower(): measure.value for measure in MEASURE}


def full_id(name: object, field: str = "id") -> str:
    """The full id of an id, an alias or a `MEASURE`. InvalidRequest for anything else."""
    text = name.value if isinstance(name, enum.Enum) else str(name)
    text = ALIASES.get(text, text)
    if text not in ALIASES.values():
        raise InvalidRequest(f"'{text}' is no measure; there are "
                             + ", ".join(sorted(ALIASES)), reason="UNKNOWN_MEASURE", field=field)
    return text
