"""A truss: the compliance of bars whose cross-sections are designed, with a penalty on volume, by the assembled stiffness matrix."""

import numpy as np


def element(c, s):
    block = np.array([[c * c, c * s], [c * s, s * s]])
    return np.vstack([np.hstack([block, -block]), np.hstack([-block, block])])


def assemble(nodes, bars, areas):
    size = 2 * len(nodes)
    stiffness = np.zeros((size, size))
    for (a, b), area in zip(bars, areas, strict=True):
        reach = nodes[b] - nodes[a]
        length = np.linalg.norm(reach)
        c, s = reach / length
        where = np.array([2 * a, 2 * a + 1, 2 * b, 2 * b + 1])
        stiffness[np.ix_(where, where)] += area / length * element(c, s)
    return stiffness


def loss(nodes, areas, bars, force, fixed):
    stiffness = assemble(nodes, bars, np.square(areas) + 0.1)
    free = np.setdiff1d(np.arange(stiffness.shape[0]), fixed)
    reduced = stiffness[free][:, free]
    moved = np.linalg.solve(reduced, force[free])
    lengths = np.array([np.sqrt(np.sum((nodes[b] - nodes[a]) ** 2)) for a, b in bars])
    _, logdet = np.linalg.slogdet(reduced)
    return force[free] @ moved + 0.05 * np.dot(lengths, np.square(areas)) + 1e-3 * logdet


def arguments(rng):
    nodes = np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.0], [0.5, 0.9], [1.5, 1.0]]) + rng.normal(0, 0.02, (5, 2))
    bars = [(0, 1), (1, 2), (0, 3), (1, 3), (1, 4), (2, 4), (3, 4)]
    force = np.zeros(10)
    force[3] = -1.0
    force[7] = -0.5
    return (nodes, rng.uniform(0.8, 1.2, 7), bars, force, [0, 1, 5]), (0, 1)
