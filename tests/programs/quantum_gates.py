"""A circuit of quantum gates on a vector of amplitudes: angles of the rotations are sought that lower the energy of a chain of spins."""

import numpy as np

PAULI_X = np.array([[0, 1], [1, 0]], dtype=complex)
PAULI_Z = np.array([1.0, -1.0])
CNOT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=complex).reshape(2, 2, 2, 2)


def rotation_y(angle):
    c, s = np.cos(angle / 2), np.sin(angle / 2)
    return np.array([[c, -s], [s, c]], dtype=complex)


def rotation_z(angle):
    return np.diag(np.exp(1j * np.array([-0.5, 0.5]) * angle))


class Register:
    def __init__(self, qubits):
        self.qubits = qubits
        self.state = np.zeros((2,) * qubits, dtype=complex)
        self.state[(0,) * qubits] = 1.0

    def apply(self, gate, qubit):
        moved = np.tensordot(gate, self.state, axes=(1, qubit))
        self.state = np.moveaxis(moved, 0, qubit)

    def apply_two(self, gate, control, target):
        moved = np.tensordot(gate, self.state, axes=((2, 3), (control, target)))
        self.state = np.moveaxis(moved, (0, 1), (control, target))

    def phase(self, qubit, angle):
        """A controlled phase, in place, of the half in which the qubit is 1."""
        half = [slice(None)] * self.qubits
        half[qubit] = 1
        self.state[tuple(half)] *= np.exp(1j * angle)

    def probabilities(self):
        return np.abs(self.state) ** 2


def circuit(angles, qubits):
    register = Register(qubits)
    for layer in angles:
        for qubit in range(qubits):
            register.apply(rotation_y(layer[qubit, 0]), qubit)
            register.apply(rotation_z(layer[qubit, 1]), qubit)
        for qubit in range(qubits - 1):
            register.apply_two(CNOT, qubit, qubit + 1)
        register.phase(0, layer[-1, 0] * 0.3)
    return register


def energy(register, field):
    probabilities = register.probabilities()
    total = 0.0
    for qubit in range(register.qubits - 1):
        others = tuple(k for k in range(register.qubits) if k not in (qubit, qubit + 1))
        pair = probabilities.sum(axis=others)
        total = total - PAULI_Z @ pair @ PAULI_Z
    for qubit in range(register.qubits):
        turned = np.tensordot(PAULI_X, register.state, axes=(1, qubit))
        total = total - field * np.vdot(register.state, np.moveaxis(turned, 0, qubit)).real
    return total


def loss(angles, field, qubits):
    register = circuit(angles, qubits)
    entropy = -np.sum(register.probabilities() * np.log(register.probabilities() + 1e-9))
    return energy(register, field) + 0.05 * entropy


def arguments(rng):
    return (rng.uniform(-1, 1, (2, 3, 2)), 0.7, 3), (0, 1)
