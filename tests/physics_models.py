"""Models of the kernels after XSBench, RSBench, LULESH and Parboil's lattice Boltzmann, in NumPy: what they compute, written another way.

Arguments by name in, expected arrays by name out, as `tests/gradients/test_kernels.py` has it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

Arrays = dict[str, Any]
CORNERS = np.array([(-1, -1, -1), (1, -1, -1), (1, 1, -1), (-1, 1, -1), (-1, -1, 1), (1, -1, 1), (1, 1, 1), (-1, 1, 1)])
FACES = np.array([(0, 3, 2, 1), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7), (4, 5, 6, 7)])


# --- neutrons ------------------------------------------------------------------------------------------------------------------------


def materials(held: Any, nuclide: Any, concentration: Any, material: Any) -> Any:
    """How much of which nuclide each lookup's material has: arrays (lookups, nuclides)."""
    found = np.zeros((len(held), nuclide.max() + 1))
    for m, count in enumerate(held):
        np.add.at(found[m], nuclide[m, :count], concentration[m, :count])
    return found[material]


def macroscopic(energy: Any, material: Any, held: Any, nuclide: Any, concentration: Any, table: Any, **_: Any) -> Arrays:
    micro = [[np.interp(energy, row["energy"], row[name]) for name in table.dtype.names[1:]] for row in table[: nuclide.max() + 1]]
    return {"result": np.einsum("ln,nrl->lr", materials(held, nuclide, concentration, material), np.array(micro))}


def faddeeva(z: Any) -> Any:
    """Far from zero the integral by Gauss and Hermite, else the series of Abrarov and Quine."""
    nodes, weights = np.polynomial.hermite.hermgauss(4)
    far = 1j / np.pi * (weights / (z[..., None] - nodes)).sum(-1)
    n, tau = np.arange(1, 11), 12.0
    turned, a = np.exp(1j * tau * z), 2 * np.sqrt(np.pi) / tau * np.exp(-((n * np.pi / tau) ** 2))
    terms = a * ((-1.0) ** n * turned[..., None] - 1) / (n**2 * np.pi**2 - tau**2 * z[..., None] ** 2)
    near = 1j * (1 - turned) / (tau * z) + 1j * tau**2 * z / np.sqrt(np.pi) * terms.sum(-1)
    return np.where(abs(z) < 6, near, far)


def multipole(
    energy: Any, material: Any, held: Any, nuclide: Any, concentration: Any, radius: Any, fit: Any, first: Any, pole: Any, width: Any,
    angular: Any, residue: Any, broadening: Any, windows: Any, **_: Any,
) -> Arrays:  # fmt: skip
    e, rho = energy[:, None], radius[None] * np.sqrt(energy)[:, None, None]
    shift = [0, np.arctan(rho[..., 1]), np.arctan(3 * rho[..., 2] / (3 - rho[..., 2] ** 2))]
    shift.append(np.arctan(rho[..., 3] * (15 - rho[..., 3] ** 2) / (15 - 6 * rho[..., 3] ** 2)))
    turn = np.exp(-2j * np.stack([rho[..., k] - shift[k] for k in range(4)], -1))
    window = np.minimum((energy * windows).astype(int), windows - 1)
    places = np.arange(pole.shape[1])
    near = (places >= first[:, window, None]) & (places < first[:, window + 1, None])  # nuclides, lookups, poles
    w = faddeeva(broadening * (e - pole[:, None] + 1j * width[:, None])) * near
    turned = np.take_along_axis(turn.transpose(1, 0, 2), np.broadcast_to(angular[:, None], w.shape), 2)
    total = e[:, 0] * fit[:, window, 0] + (residue[:, None, :, 0] * turned * w).real.sum(-1)
    absorbed, fission = (e[:, 0] * fit[:, window, k] + (residue[:, None, :, k] * w).real.sum(-1) for k in (1, 2))
    micro = np.stack([total, absorbed, fission, total - absorbed])
    share = materials(held, nuclide, concentration, material)
    return {"result": np.einsum("ln,rnl->lr", share, micro[:, : share.shape[1]])}


# --- a fluid -------------------------------------------------------------------------------------------------------------------------


def lattice_boltzmann_3d(f: Any, kind: Any, omega: Any, lid: Any, **_: Any) -> Arrays:
    one = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, -1, 0), (1, 0, 1), (1, 0, -1), (0, 1, 1), (0, 1, -1)]
    e = np.array([(0, 0, 0), *(sign * np.array(way) for way in one for sign in (1, -1))])
    weight = np.array([1 / 3, 1 / 18, 1 / 36])[abs(e).sum(1)]
    rho = f.sum(0)
    u = np.where(kind == 2, np.array([lid, 0, 0])[:, None, None, None], np.tensordot(e.T, f, 1) / rho)
    eu = 3 * np.tensordot(e, u, 1)
    relaxed = f + omega * (weight[:, None, None, None] * rho * (1 + eu + eu**2 / 2 - 1.5 * (u**2).sum(0)) - f)
    opposite = [next(k for k in range(19) if (e[k] == -way).all()) for way in e]
    sent = np.where(kind == 1, f[opposite], relaxed)
    return {"g": np.stack([np.roll(sent[k], e[k, ::-1], (0, 1, 2)) for k in range(19)])}


# --- hexahedra -----------------------------------------------------------------------------------------------------------------------


def slopes(at: Any) -> Any:
    """How the eight shape functions grow along the element's axes, at a place between -1 and 1: (8, 3)."""
    factors = (1 + CORNERS * at) / 2
    return np.stack([CORNERS[:, a] / 2 * np.prod(np.delete(factors, a, 1), 1) for a in range(3)], 1)


def volumes(x: Any) -> tuple[Any, Any]:
    """Of corners (elements, 8, 3) the volumes, and how they grow with each corner: Gauss's quadrature with two nodes, which is exact."""
    volume, growth = np.zeros(len(x)), np.zeros(x.shape)
    for at in product((-(3**-0.5), 3**-0.5), repeat=3):
        n = slopes(np.array(at))
        map_ = np.einsum("eci,ca->eia", x, n)
        size = np.linalg.det(map_)
        volume += size
        growth += np.einsum("e,eai,ca->eci", size, np.linalg.inv(map_), n)
    return volume, growth


def areas(x: Any) -> Any:
    """The area vectors of the six faces, outward, from two triangles each: (elements, 6, 3)."""
    a, b, c, d = (x[:, FACES[:, k]] for k in range(4))
    return (np.cross(b - a, c - a) + np.cross(c - a, d - a)) / 2


def at_nodes(force: Any, corner: Any, pushes: Any) -> Any:
    """Forces after what elements (elements, 8, 3) add."""
    found = force.copy()
    for a in range(3):
        np.add.at(found[a], corner, pushes[..., a])
    return found


def stress_forces(position: Any, corner: Any, pressure: Any, viscosity: Any, force: Any, **_: Any) -> Arrays:
    x = position.T[corner]
    beside = (np.arange(8)[:, None] == FACES[:, None]).any(2)
    return {"force": at_nodes(force, corner, np.einsum("e,efi,fc->eci", (pressure + viscosity) / 4, areas(x), beside))}


def hourglass_forces(
    position: Any, velocity: Any, corner: Any, mass: Any, sound: Any, strength: Any, force: Any, **_: Any
) -> Arrays:  # fmt: skip
    x, v = position.T[corner], velocity.T[corner]
    volume, growth = volumes(x)
    modes = np.stack([np.prod(CORNERS[:, list(axes)], 1) for axes in ((1, 2), (0, 2), (0, 1), (0, 1, 2))])
    bent = np.einsum("kc,eci->eki", modes, x)
    shapes = modes - np.einsum("eci,eki,e->ekc", growth, bent, 1 / volume)
    factor = -0.01 * strength * sound * mass / np.cbrt(volume)
    return {"force": at_nodes(force, corner, np.einsum("e,ekc,ekb,ebi->eci", factor, shapes, shapes, v))}


def move(force: Any, mass: Any, velocity: Any, position: Any, dt: Any, side: Any, **_: Any) -> Arrays:
    z, y, x = np.indices((side + 1,) * 3).reshape(3, -1)
    after = velocity + dt * force / mass * (np.stack([x, y, z]) > 0)
    after[abs(after) < 1e-7] = 0
    return {"velocity": after, "position": position + dt * after, "force": np.zeros_like(force)}


def deform(position: Any, velocity: Any, corner: Any, reference: Any, volume: Any, dt: Any, **_: Any) -> Arrays:
    x, v = position.T[corner], velocity.T[corner]
    now = volumes(x)[0]
    center = slopes(np.zeros(3))
    back, spread = (np.einsum("eci,ca->eia", field, center) for field in (x - dt / 2 * v, v))
    return {
        "volume": now / reference,
        "change": now / reference - volume,
        "length": now / np.linalg.norm(areas(x), axis=2).max(1),
        "rate": np.einsum("eia,eai->e", spread, np.linalg.inv(back)),
    }


def material(
    volume: Any, change: Any, rate: Any, length: Any, energy: Any, pressure: Any, viscosity: Any, density: Any, **_: Any
) -> Arrays:  # fmt: skip
    def state(e: Any, v: Any) -> tuple[Any, Any, Any]:
        p = 2 / 3 * e / v
        p = np.where(p < 1e-7, 0, p)
        sound = np.sqrt(np.maximum(2 / 3 * (e + v * p) / density, 0))
        return p, np.where(change <= 0, density / volume * (sound * length * abs(rate) / 2 + 2 / 3 * (length * rate) ** 2), 0), sound

    old, half = pressure + viscosity, volume - change / 2
    e = energy - change / 2 * old
    middle = sum(state(e, half)[:2])
    e = e + change / 2 * (3 * old - 4 * middle)
    e = e - change / 6 * (7 * old - 8 * middle + sum(state(e, volume)[:2]))
    p, q, sound = state(e, volume)
    return {"energy": e, "pressure": p, "viscosity": q, "sound": sound}


MODELS = {
    "cross_section-macroscopic": macroscopic,
    "multipole": multipole,
    "lattice_boltzmann_3d": lattice_boltzmann_3d,
    **{f"shock_hydrodynamics-{f.__name__}": f for f in (stress_forces, hourglass_forces, move, deform, material)},
}
