"""A mixture of Gaussians by steps of expectation and maximisation, begun with centres by k-means: how the fit hangs on the data and on the
first centres."""

import numpy as np


def k_means(data, centres, rounds):
    for _ in range(rounds):
        distance = np.linalg.norm(data[:, None, :] - centres[None, :, :], axis=2)
        label = np.argmin(distance, axis=1)
        moved = np.zeros_like(centres)
        for k in range(len(centres)):
            mine = data[label == k]
            moved[k] = mine.mean(axis=0) if len(mine) else centres[k]
        centres = moved
    return centres, label


class Mixture:
    def __init__(self, centres, label, data):
        n = len(label)
        self.weights = np.bincount(label, minlength=len(centres)) / n
        self.means = centres
        self.covariances = np.stack([np.cov(data[label == k], rowvar=False) + 0.1 * np.eye(data.shape[1]) for k in range(len(centres))])

    def log_density(self, data):
        logs = np.empty((len(data), len(self.weights)))
        for k, (weight, mean, covariance) in enumerate(zip(self.weights, self.means, self.covariances, strict=True)):
            factor = np.linalg.cholesky(covariance)
            white = np.linalg.solve(factor, (data - mean).T)
            logs[:, k] = np.log(weight) - 0.5 * np.sum(white**2, axis=0) - np.sum(np.log(np.diag(factor)))
        return logs - 0.5 * data.shape[1] * np.log(2 * np.pi)

    def expect(self, data):
        logs = self.log_density(data)
        top = logs.max(axis=1, keepdims=True)
        total = top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True))
        return logs - total, total[:, 0]

    def maximise(self, data, responsible):
        counts = responsible.sum(axis=0) + 1e-9
        self.weights = counts / len(data)
        self.means = responsible.T @ data / counts[:, None]
        centred = data[None] - self.means[:, None]
        self.covariances = np.einsum("nk,kni,knj->kij", responsible, centred, centred) / counts[:, None, None]
        for covariance in self.covariances:
            covariance[np.diag_indices(data.shape[1])] += 1e-2


def fit(data, centres, rounds):
    mixture = Mixture(*k_means(data, centres, 2), data)
    history = []
    for _ in range(rounds):
        log_responsible, likelihood = mixture.expect(data)
        mixture.maximise(data, np.exp(log_responsible))
        history.append(likelihood.mean())
    return mixture, np.array(history)


def loss(data, centres, rounds):
    mixture, history = fit(data, centres, rounds)
    order = np.argsort(mixture.means[:, 0])
    apart = mixture.means[order][1:] - mixture.means[order][:-1]
    return -history[-1] + 0.1 * history[0] + 0.05 * np.sqrt((apart**2).sum())


def arguments(rng):
    data = np.concatenate([rng.normal((-1, 0), 0.5, (9, 2)), rng.normal((1.5, 1), 0.4, (9, 2))])
    return (data, np.array([[-1.0, 0.3], [1.0, 1.0]]), 2), (0, 1)
