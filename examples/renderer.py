"""A renderer of glossy balls: a ray for each pixel, soft edges by signed distances, light from above and a floor that fades. Where balls
are, how large and of which colour is sought from a picture of them."""

from matplotlib import pyplot
from scipy.optimize import minimize

import gpuad
import gpuad.numpy as np

LIGHT = np.array([0.4, 0.7, -0.6]) / np.linalg.norm([0.4, 0.7, -0.6])


def rays(n):
    """The directions of rays through the pixels of a square picture."""
    y, x = np.meshgrid(np.linspace(1, -1, n), np.linspace(-1, 1, n), indexing="ij")
    direction = np.stack([x, y, np.full_like(x, 1.8)])
    return direction / np.linalg.norm(direction, axis=0)


def ball(direction, centre, radius):
    """How much a pixel shows of a ball, its depth and its normal."""
    along = np.tensordot(centre, direction, axes=1)
    nearest = along * direction - centre[:, None, None]
    gap = np.sqrt(np.sum(nearest**2, axis=0) + 1e-9) - radius
    cover = 1 / (1 + np.exp(np.clip(40 * gap, -30, 30)))
    inside = np.maximum(radius**2 - np.sum(nearest**2, axis=0), 1e-4)
    depth = along - np.sqrt(inside)
    normal = (depth * direction - centre[:, None, None]) / radius
    return cover, depth, normal


def shade(direction, normal, colour):
    lambert = np.maximum(np.tensordot(LIGHT, normal, axes=1), 0.0)
    half = LIGHT[:, None, None] - direction
    half = half / np.linalg.norm(half, axis=0)
    gloss = np.maximum(np.sum(half * normal, axis=0), 0.0) ** 20
    return colour[:, None, None] * (0.25 + 0.75 * lambert) + 0.3 * gloss


def render(centres, radii, colours, n):
    direction = rays(n)
    height = np.clip(direction[1], -0.6, 0.6)
    image = np.stack([0.6 + 0.3 * height, 0.7 + 0.2 * height, 0.9 + 0.1 * height])
    front = np.full((n, n), 1e3)
    for centre, radius, colour in zip(centres, radii, colours, strict=True):
        cover, depth, normal = ball(direction, centre, radius)
        before = 1 / (1 + np.exp(np.clip(8 * (depth - front), -30, 30)))
        image = image + cover * before * (shade(direction, normal, colour) - image)
        front = np.where(cover > 0.5, np.minimum(front, depth), front)
    return image


def loss(centres, radii, colours, photo):
    image = render(centres, radii, colours, photo.shape[1])
    return np.mean((image - photo) ** 2)


def truth():
    centres = np.array([[-0.7, 0.1, 4.0], [0.6, -0.3, 3.4], [0.2, 0.9, 4.5]])
    return centres, np.array([0.6, 0.5, 0.55]), np.array([[0.9, 0.3, 0.2], [0.2, 0.6, 0.9], [0.3, 0.8, 0.3]])


def problem(n):
    centres, radii, colours = truth()
    away = np.array([[0.15, -0.1, 0.0], [-0.1, 0.15, 0.0], [0.1, -0.1, 0.0]])
    return centres + away, 0.9 * radii, np.full((3, 3), 0.5), render(centres, radii, colours, n)


def fit(start, rounds):
    objective = gpuad.value_and_grad(loss, (0, 1, 2)).flat(*start)
    found = minimize(objective, objective.start, jac=True, method="L-BFGS-B", options={"maxiter": rounds})
    return objective.arrays(found.x), found.fun


def picture(path, start, centres, radii, colours):
    photo = start[3]
    panels = {"photo": photo, "start": render(*start[:3], photo.shape[1]), "found": render(centres, radii, colours, photo.shape[1])}
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3))
    for axis, (title, image) in zip(axes, panels.items(), strict=True):
        axis.imshow(np.clip(np.moveaxis(image, 0, -1), 0, 1))
        axis.set_title(title)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(path="renderer.png", rounds=40, n=32):
    start = problem(n)
    found, value = fit(start, rounds)
    print("loss", loss(*start), "->", value)
    picture(path, start, *found)
    return loss(*start), value


if __name__ == "__main__":
    main()
