/*gpuad
title = "Lagrangian shock hydrodynamics on hexahedra: the kernels of a time step, which move the mesh and its matter in place"
[[case]]
kernel = "stress_forces"
title = "from the stress in each element to forces on its eight corners"
sizes = {side = 3, elements = "side * side * side", nodes = "(side + 1) * (side + 1) * (side + 1)"}
grid = ["(elements + 31) // 32"]
block = [32]
[case.arguments]
position = {shape = [3, "nodes"], init = "index(1) // (1 + index(0) * side + index(0) * (index(0) - 1) // 2 * side * side) % (side + 1) + uniform(-0.1, 0.1)", active = true}
corner = {shape = ["elements", 8], init = "((index(0) // side // side + index(1) // 4) * (side + 1) + index(0) // side % side + index(1) // 2 % 2) * (side + 1) + index(0) % side + (index(1) + 1) // 2 % 2"}
pressure = {shape = ["elements"], init = "positive", active = true}
viscosity = {shape = ["elements"], init = "positive", active = true}
force = {shape = [3, "nodes"], init = "zeros", active = true}
elements = {value = "elements"}
nodes = {value = "nodes"}
[case.benchmark]
sizes = {side = 48}
bytes = "48 * elements + 72 * nodes"

[[case]]
kernel = "hourglass_forces"
title = "forces against the motions of a hexahedron that change no volume"
sizes = {side = 3, elements = "side * side * side", nodes = "(side + 1) * (side + 1) * (side + 1)"}
grid = ["(elements + 31) // 32"]
block = [32]
[case.arguments]
position = {shape = [3, "nodes"], init = "index(1) // (1 + index(0) * side + index(0) * (index(0) - 1) // 2 * side * side) % (side + 1) + uniform(-0.1, 0.1)", active = true}
velocity = {shape = [3, "nodes"], init = "normal", active = true}
corner = {shape = ["elements", 8], init = "((index(0) // side // side + index(1) // 4) * (side + 1) + index(0) // side % side + index(1) // 2 % 2) * (side + 1) + index(0) % side + (index(1) + 1) // 2 % 2"}
mass = {shape = ["elements"], init = "positive", active = true}
sound = {shape = ["elements"], init = "positive", active = true}
strength = {value = 3.0, active = true}
force = {shape = [3, "nodes"], init = "zeros", active = true}
elements = {value = "elements"}
nodes = {value = "nodes"}
[case.benchmark]
sizes = {side = 48}
bytes = "48 * elements + 96 * nodes"

[[case]]
kernel = "move"
title = "velocity and position of each node after a step; planes through the origin are mirrors; forces are cleared for the next step"
sizes = {side = 3, nodes = "(side + 1) * (side + 1) * (side + 1)"}
grid = ["(nodes + 31) // 32"]
block = [32]
[case.arguments]
force = {shape = [3, "nodes"], init = "normal", active = true}
mass = {shape = ["nodes"], init = "positive", active = true}
velocity = {shape = [3, "nodes"], init = "normal", active = true}
position = {shape = [3, "nodes"], init = "normal", active = true}
dt = {value = 0.01, active = true}
side = {value = "side"}
nodes = {value = "nodes"}
[case.benchmark]
sizes = {side = 48}
bytes = "152 * nodes"

[[case]]
kernel = "deform"
title = "volume, its change, its rate and the characteristic length of each element"
sizes = {side = 3, elements = "side * side * side", nodes = "(side + 1) * (side + 1) * (side + 1)"}
grid = ["(elements + 31) // 32"]
block = [32]
[case.arguments]
position = {shape = [3, "nodes"], init = "index(1) // (1 + index(0) * side + index(0) * (index(0) - 1) // 2 * side * side) % (side + 1) + uniform(-0.1, 0.1)", active = true}
velocity = {shape = [3, "nodes"], init = "normal", active = true}
corner = {shape = ["elements", 8], init = "((index(0) // side // side + index(1) // 4) * (side + 1) + index(0) // side % side + index(1) // 2 % 2) * (side + 1) + index(0) % side + (index(1) + 1) // 2 % 2"}
reference = {shape = ["elements"], init = "positive", active = true}
volume = {shape = ["elements"], init = "positive", active = true}
change = {shape = ["elements"], init = "zeros", active = true}
rate = {shape = ["elements"], init = "zeros", active = true}
length = {shape = ["elements"], init = "zeros", active = true}
dt = {value = 0.01, active = true}
elements = {value = "elements"}
nodes = {value = "nodes"}
[case.benchmark]
sizes = {side = 48}
bytes = "80 * elements + 48 * nodes"

[[case]]
kernel = "material"
title = "artificial viscosity, energy, pressure and speed of sound of each element"
sizes = {elements = 60}
grid = ["(elements + 31) // 32"]
block = [32]
[case.arguments]
volume = {shape = ["elements"], init = "positive", active = true}
change = {shape = ["elements"], init = "uniform(-0.1, 0.1)", active = true}
rate = {shape = ["elements"], init = "normal", active = true}
length = {shape = ["elements"], init = "positive", active = true}
energy = {shape = ["elements"], init = "positive", active = true}
pressure = {shape = ["elements"], init = "positive", active = true}
viscosity = {shape = ["elements"], init = "positive", active = true}
sound = {shape = ["elements"], init = "zeros", active = true}
density = {value = 1.2, active = true}
elements = {value = "elements"}
[case.benchmark]
sizes = {elements = 110592}
bytes = "88 * elements"
*/
// The method is that of LULESH (Hornung, Keasler and Gokhale 2011, LLNL-TR-490254), with the hourglass forces of Flanagan and Belytschko
// (1981); the viscosity is that of von Neumann and Richtmyer with a linear term, and the time step is given. Corner 0 of an element is the
// least along all its axes, 6 the greatest; 0 to 3 go around one face, 4 to 7 around the other.
#define CORNERS 8
#define MODES 4
#define TINY 1e-7
#define GAMMA_1 (2.0 / 3.0)

__device__ double3 operator+(double3 a, double3 b) { return make_double3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ double3 operator-(double3 a, double3 b) { return make_double3(a.x - b.x, a.y - b.y, a.z - b.z); }
__device__ double3 operator*(double s, double3 a) { return make_double3(s * a.x, s * a.y, s * a.z); }
__device__ double dot(double3 a, double3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ double3 cross(double3 a, double3 b) { return make_double3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x); }

__device__ void gather(const double* field, const int* corner, int nodes, double3* x) {
    for (int c = 0; c < CORNERS; c++) x[c] = make_double3(field[corner[c]], field[nodes + corner[c]], field[2 * nodes + corner[c]]);
}

__device__ void scatter(double* field, const int* corner, int nodes, const double3* x) {
    for (int c = 0; c < CORNERS; c++) {
        atomicAdd(&field[corner[c]], x[c].x);
        atomicAdd(&field[nodes + corner[c]], x[c].y);
        atomicAdd(&field[2 * nodes + corner[c]], x[c].z);
    }
}

// On which side of the middle a corner lies, along an axis of the element.
__device__ int side_of(int corner, int axis) { return 2 * ((axis == 0 ? (corner + 1) / 2 : axis == 1 ? corner / 2 : corner / 4) % 2) - 1; }

__device__ double volume_of(const double3* x) {
    return (dot((x[3] - x[1]) + (x[7] - x[2]), cross(x[6] - x[3], x[2] - x[0])) +
            dot((x[4] - x[3]) + (x[5] - x[7]), cross(x[6] - x[4], x[7] - x[0])) +
            dot((x[1] - x[4]) + (x[2] - x[5]), cross(x[6] - x[1], x[5] - x[0]))) / 12.0;
}

// How the volume grows with the position of one corner, by those that share a face with it.
__device__ double3 growth(const double3* x, int corner) {
    const int near[CORNERS][6] = {{1, 2, 3, 4, 5, 7}, {2, 3, 0, 5, 6, 4}, {3, 0, 1, 6, 7, 5}, {0, 1, 2, 7, 4, 6},
                                  {7, 6, 5, 0, 3, 1}, {4, 7, 6, 1, 0, 2}, {5, 4, 7, 2, 1, 3}, {6, 5, 4, 3, 2, 0}};
    double3 p[6];
    for (int k = 0; k < 6; k++) p[k] = x[near[corner][k]];
    return (1.0 / 12.0) * (cross(p[1] + p[2], p[0] + p[1]) + cross(p[0] + p[4], p[3] + p[4]) - cross(p[2] + p[5], p[3] + p[5]));
}

extern "C" __global__ void stress_forces(const double* position, const int* corner, const double* pressure, const double* viscosity,
                                         double* force, int elements, int nodes) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= elements) return;
    const int face[6][4] = {{0, 3, 2, 1}, {0, 1, 5, 4}, {1, 2, 6, 5}, {2, 3, 7, 6}, {3, 0, 4, 7}, {4, 5, 6, 7}};
    double3 x[CORNERS], push[CORNERS];
    gather(position, corner + e * CORNERS, nodes, x);
    for (int c = 0; c < CORNERS; c++) push[c] = make_double3(0.0, 0.0, 0.0);
    const double pushes = (pressure[e] + viscosity[e]) / 8.0;
    for (int f = 0; f < 6; f++) {
        const double3 area = pushes * cross(x[face[f][2]] - x[face[f][0]], x[face[f][3]] - x[face[f][1]]);
        for (int k = 0; k < 4; k++) push[face[f][k]] = push[face[f][k]] + area;
    }
    scatter(force, corner + e * CORNERS, nodes, push);
}

extern "C" __global__ void hourglass_forces(const double* position, const double* velocity, const int* corner, const double* mass,
                                            const double* sound, double strength, double* force, int elements, int nodes) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= elements) return;
    double3 x[CORNERS], v[CORNERS], damping[CORNERS];
    gather(position, corner + e * CORNERS, nodes, x);
    gather(velocity, corner + e * CORNERS, nodes, v);
    for (int c = 0; c < CORNERS; c++) damping[c] = make_double3(0.0, 0.0, 0.0);
    const double volume = volume_of(x), factor = -0.01 * strength * sound[e] * mass[e] / cbrt(volume);
    for (int m = 0; m < MODES; m++) {
        double shape[CORNERS];
        double3 bent = make_double3(0.0, 0.0, 0.0), moving = make_double3(0.0, 0.0, 0.0);
        for (int c = 0; c < CORNERS; c++) {
            shape[c] = (m == 0 ? 1 : side_of(c, 0)) * (m == 1 ? 1 : side_of(c, 1)) * (m == 2 ? 1 : side_of(c, 2));
            bent = bent + shape[c] * x[c];
        }
        for (int c = 0; c < CORNERS; c++) {
            shape[c] -= dot(growth(x, c), bent) / volume;
            moving = moving + shape[c] * v[c];
        }
        for (int c = 0; c < CORNERS; c++) damping[c] = damping[c] + factor * shape[c] * moving;
    }
    scatter(force, corner + e * CORNERS, nodes, damping);
}

extern "C" __global__ void move(double* force, const double* mass, double* velocity, double* position, double dt, int side, int nodes) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= nodes) return;
    const double kick = dt / mass[n];
    int along = n;
    for (int axis = 0; axis < 3; axis++) {
        const int i = axis * nodes + n;
        const bool mirrored = along % (side + 1) == 0;
        const double speed = velocity[i] + (mirrored ? 0.0 : kick * force[i]);
        velocity[i] = fabs(speed) < TINY ? 0.0 : speed;
        position[i] += dt * velocity[i];
        force[i] = 0.0;
        along /= side + 1;
    }
}

extern "C" __global__ void deform(const double* position, const double* velocity, const int* corner, const double* reference,
                                  double* volume, double* change, double* rate, double* length, double dt, int elements, int nodes) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= elements) return;
    const int face[6][4] = {{0, 3, 2, 1}, {0, 1, 5, 4}, {1, 2, 6, 5}, {2, 3, 7, 6}, {3, 0, 4, 7}, {4, 5, 6, 7}};
    double3 x[CORNERS], v[CORNERS];
    gather(position, corner + e * CORNERS, nodes, x);
    gather(velocity, corner + e * CORNERS, nodes, v);
    const double now = volume_of(x), relative = now / reference[e];
    change[e] = relative - volume[e];
    volume[e] = relative;
    double largest = 0.0;
    for (int f = 0; f < 6; f++) {
        const double3 a = x[face[f][2]] - x[face[f][0]], b = x[face[f][3]] - x[face[f][1]], area = cross(a, b);
        largest = fmax(largest, 4.0 * dot(area, area));
    }
    length[e] = 4.0 * now / sqrt(largest);

    double3 axis[3];
    for (int a = 0; a < 3; a++) {
        axis[a] = make_double3(0.0, 0.0, 0.0);
        for (int c = 0; c < CORNERS; c++) axis[a] = axis[a] + 0.125 * side_of(c, a) * (x[c] - 0.5 * dt * v[c]);
    }
    const double3 normal[3] = {cross(axis[1], axis[2]), cross(axis[2], axis[0]), cross(axis[0], axis[1])};
    double spreads = 0.0;
    for (int c = 0; c < CORNERS; c++) {
        const double3 slope = side_of(c, 0) * normal[0] + side_of(c, 1) * normal[1] + side_of(c, 2) * normal[2];
        spreads += dot(slope, v[c]);
    }
    rate[e] = spreads / (8.0 * dot(axis[0], normal[0]));
}

__device__ double pressure_of(double energy, double volume) {
    const double p = GAMMA_1 * energy / volume;
    return p < TINY ? 0.0 : p;
}

__device__ double sound_of(double energy, double pressure, double volume, double density) {
    const double square = GAMMA_1 * (energy + volume * pressure) / density;
    return square < 1e-37 ? 0.0 : sqrt(square);
}

extern "C" __global__ void material(const double* volume, const double* change, const double* rate, const double* length, double* energy,
                                    double* pressure, double* viscosity, double* sound, double density, int elements) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= elements) return;
    const double v = volume[e], dv = change[e], half = v - 0.5 * dv, before = pressure[e] + viscosity[e];
    const double jump = length[e] * fabs(rate[e]), linear = 0.5 * density / v * jump, quadratic = 2.0 / 3.0 * density / v * jump * jump;
    const bool squeezed = dv <= 0.0;

    double now = energy[e] - 0.5 * dv * before;
    const double p_half = pressure_of(now, half);
    const double q_half = squeezed ? sound_of(now, p_half, half, density) * linear + quadratic : 0.0;
    now += 0.5 * dv * (3.0 * before - 4.0 * (p_half + q_half));
    if (fabs(now) < TINY) now = 0.0;

    double p = pressure_of(now, v);
    const double q_new = squeezed ? sound_of(now, p, v, density) * linear + quadratic : 0.0;
    now -= dv / 6.0 * (7.0 * before - 8.0 * (p_half + q_half) + p + q_new);
    if (fabs(now) < TINY) now = 0.0;

    p = pressure_of(now, v);
    const double c = sound_of(now, p, v, density), q = squeezed ? c * linear + quadratic : 0.0;
    energy[e] = now;
    pressure[e] = p;
    viscosity[e] = q < TINY ? 0.0 : q;
    sound[e] = c;
}
