"""Definitions of measures, in loops and NumPy."""

import numpy as np


def distances(points):
    points = np.asarray(points, float)
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))


def arc_distances(points):
    """Great-circle distances on the unit sphere: longitude, latitude, in radians."""
    points = np.asarray(points, float)
    longitude, latitude = points[:, 0], points[:, 1]
    across = np.sin((latitude[:, None] - latitude[None]) / 2) ** 2
    along = np.sin((longitude[:, None] - longitude[None]) / 2) ** 2
    inner = across + np.cos(latitude)[:, None] * np.cos(latitude)[None] * along
    return 2 * np.arcsin(np.sqrt(np.clip(inner, 0, 1)))


def ranks(matrix):
    """Rank of every row as seen from every row, 1 for the nearest; ties by index, itself 0."""
    matrix = matrix.copy()
    np.fill_diagonal(matrix, -1)
    order = np.argsort(matrix, axis=1, kind="stable")
    result = np.empty_like(order)
    np.put_along_axis(result, order, np.arange(len(matrix))[None], axis=1)
    return result


def trustworthiness(original, projected, k):
    """Venna and Kaski's: of two matrices of ranks."""
    n = len(original)
    excess = np.where((projected <= k) & (projected > 0), np.maximum(original - k, 0), 0)
    return 1 - 2 / (n * k * (2 * n - 3 * k - 1)) * excess.sum()


def stress(original, projected):
    upper = np.triu_indices(len(original), 1)
    return np.sqrt(((original[upper] - projected[upper]) ** 2).sum() / (original[upper] ** 2).sum())
