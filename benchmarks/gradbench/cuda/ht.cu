// Tracking of a hand: a mesh that is moved by bones, against measured points. A pose has 26 numbers: rotation of the whole hand as an axis
// times an angle, its place, and four angles a finger. Poses come in batches: pose k is theta + 26 * k.
#define POSE 26

// Row-major products of matrices of four rows and columns: c = a b.
__device__ void multiply(const double* a, const double* b, double* c) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[4 * i + j] = a[4 * i] * b[j] + a[4 * i + 1] * b[4 + j] + a[4 * i + 2] * b[8 + j] + a[4 * i + 3] * b[12 + j];
}

// How each bone moves the mesh: the product along the chain of its ancestors, each turned by its angles, with the inverse of the bone at rest.
// Of bones 1 to 20 each four in turn are a finger: its first bone has no angle, the second one has two, the others have one each.
extern "C" __global__ void bones(const double* theta, const double* relative, const double* rest, const int* parent, double* transform,
                                 int count, int poses) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= count * poses) return;
    const double* pose = theta + e / count * POSE;
    double chain[16], turned[16], moved[16], turn[16];
    for (int i = 0; i < 16; i++) chain[i] = rest[e % count * 16 + i];
    for (int bone = e % count; bone >= 0; bone = parent[bone]) {
        double bend = 0.0, spread = 0.0;
        int finger = (bone - 1) / 4, joint = (bone - 1) % 4;
        if (joint > 0 && finger < 5) {
            bend = pose[5 + 4 * finger + (joint > 1 ? joint + 1 : 1)];
            if (joint == 1) spread = pose[7 + 4 * finger];
        }
        double cx = cos(bend), sx = sin(bend), cz = cos(spread), sz = sin(spread);
        for (int i = 0; i < 16; i++) turn[i] = 0.0;
        turn[0] = cz;
        turn[1] = -sz * cx;
        turn[2] = sz * sx;
        turn[4] = sz;
        turn[5] = cz * cx;
        turn[6] = -cz * sx;
        turn[9] = sx;
        turn[10] = cx;
        turn[15] = 1.0;
        multiply(turn, chain, turned);
        multiply(relative + bone * 16, turned, moved);
        for (int i = 0; i < 16; i++) chain[i] = moved[i];
    }
    for (int i = 0; i < 16; i++) transform[e * 16 + i] = chain[i];
}

// The rotation of each pose, by rows.
extern "C" __global__ void rotations(const double* theta, double* rotation, int poses) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= poses) return;
    double x = theta[k * POSE], y = theta[k * POSE + 1], z = theta[k * POSE + 2];
    double square = x * x + y * y + z * z;
    double* r = rotation + 9 * k;
    if (square < 1.0e-8) {
        for (int i = 0; i < 9; i++) r[i] = i % 4 == 0 ? 1.0 : 0.0;
        return;
    }
    double angle = sqrt(square), c = cos(angle), s = sin(angle);
    x /= angle;
    y /= angle;
    z /= angle;
    r[0] = x * x + (1.0 - x * x) * c;
    r[1] = x * y * (1.0 - c) - z * s;
    r[2] = x * z * (1.0 - c) + y * s;
    r[3] = x * y * (1.0 - c) + z * s;
    r[4] = y * y + (1.0 - y * y) * c;
    r[5] = y * z * (1.0 - c) - x * s;
    r[6] = x * z * (1.0 - c) - y * s;
    r[7] = z * y * (1.0 - c) + x * s;
    r[8] = z * z + (1.0 - z * z) * c;
}

// Of each point and pose its distance from where the mesh has it: at a corner of the mesh (corners 1), or in a triangle, at the coordinates us
// (corners 3). The corners of point i are corner[i * corners + v]; a corner is moved by `most` bones with weights.
extern "C" __global__ void distances(const double* transform, const double* rotation, const double* theta, const double* us,
                                     const double* base, const int* bone, const double* weight, const int* corner, const double* points,
                                     double* error, double mirror, int corners, int most, int count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y;
    if (i >= n) return;
    double x = 0.0, y = 0.0, z = 0.0;
    for (int v = 0; v < corners; v++) {
        double share = 1.0;
        if (corners == 3) {
            double u0 = us[(k * n + i) * 2], u1 = us[(k * n + i) * 2 + 1];
            share = v == 0 ? u0 : v == 1 ? u1 : 1.0 - u0 - u1;
        }
        int at = corner[i * corners + v];
        double bx = base[4 * at], by = base[4 * at + 1], bz = base[4 * at + 2], bw = base[4 * at + 3];
        for (int m = 0; m < most; m++) {
            const double* t = transform + (k * count + bone[at * most + m]) * 16;
            double w = share * weight[at * most + m];
            x += w * (t[0] * bx + t[1] * by + t[2] * bz + t[3] * bw);
            y += w * (t[4] * bx + t[5] * by + t[6] * bz + t[7] * bw);
            z += w * (t[8] * bx + t[9] * by + t[10] * bz + t[11] * bw);
        }
    }
    x *= mirror;
    const double* r = rotation + 9 * k;
    const double* place = theta + k * POSE + 3;
    double* e = error + (k * n + i) * 3;
    e[0] = points[3 * i] - (r[0] * x + r[1] * y + r[2] * z + place[0]);
    e[1] = points[3 * i + 1] - (r[3] * x + r[4] * y + r[5] * z + place[1]);
    e[2] = points[3 * i + 2] - (r[6] * x + r[7] * y + r[8] * z + place[2]);
}
