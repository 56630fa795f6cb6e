"""Topology optimisation: how a given mass is laid out in a cantilever so that it is as stiff as possible (SIMP): bilinear elements, an
assembled stiffness matrix, a filter of densities, a penalty on too much mass."""

import numpy as np


def element_stiffness(nu=0.3):
    """The matrix of a square element in plane stress, by its eight numbers."""
    k = np.array([1 / 2 - nu / 6, 1 / 8 + nu / 8, -1 / 4 - nu / 12, -1 / 8 + 3 * nu / 8, -1 / 4 + nu / 12, -1 / 8 - nu / 8, nu / 6,
                  1 / 8 - 3 * nu / 8])  # fmt: skip
    order = np.array([
        [0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 7, 6, 5, 4, 3, 2], [2, 7, 0, 5, 6, 3, 4, 1], [3, 6, 5, 0, 7, 2, 1, 4],
        [4, 5, 6, 7, 0, 1, 2, 3], [5, 4, 3, 2, 1, 0, 7, 6], [6, 3, 4, 1, 2, 7, 0, 5], [7, 2, 1, 4, 3, 6, 5, 0],
    ])  # fmt: skip
    return k[order] / (1 - nu**2)


class Beam:
    """A mesh of ny times nx squares, held on the left, pulled down at the middle of the right."""

    def __init__(self, ny, nx, radius=1.5):
        self.ny, self.nx = ny, nx
        y, x = np.meshgrid(np.arange(ny), np.arange(nx), indexing="ij")
        corner = (x * (ny + 1) + y).ravel()
        offsets = np.array([1, ny + 2, ny + 1, 0])
        nodes = corner[:, None] + offsets
        self.dofs = np.stack([2 * nodes, 2 * nodes + 1], axis=2).reshape(len(corner), 8)
        self.size = 2 * (nx + 1) * (ny + 1)
        self.free = np.arange(2 * (ny + 1), self.size)
        self.force = np.zeros(self.size)
        self.force[2 * (nx * (ny + 1) + ny // 2) + 1] = -1.0
        away = np.hypot(y.ravel()[:, None] - y.ravel(), x.ravel()[:, None] - x.ravel())
        cone = np.maximum(radius - away, 0)
        self.filter = cone / cone.sum(axis=1, keepdims=True)
        self.element = element_stiffness()


def layout(beam, design):
    """Densities between 0 and 1, smoothed so that no chessboards appear."""
    return beam.filter @ (1 / (1 + np.exp(-design.ravel())))


def stiffness(beam, density):
    modulus = 1e-3 + density**3
    matrix = np.zeros((beam.size, beam.size))
    blocks = modulus[:, None, None] * beam.element
    np.add.at(matrix, (beam.dofs[:, :, None], beam.dofs[:, None, :]), blocks)
    return matrix


def compliance(beam, density):
    free = beam.free
    moved = np.linalg.solve(stiffness(beam, density)[np.ix_(free, free)], beam.force[free])
    return beam.force[free] @ moved


def loss(design, beam, share, penalty):
    density = layout(beam, design)
    return np.log(compliance(beam, density)) + penalty * (np.mean(density) - share) ** 2


def problem(ny, nx):
    return np.zeros((ny, nx)), Beam(ny, nx), 0.45, 100.0


if __name__ == "__main__":
    print("loss", loss(*problem(8, 20)))
