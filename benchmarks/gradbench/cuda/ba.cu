// Bundle adjustment. An observation has 15 parameters: the 11 of its camera (rotation as an axis times an angle, centre, focal length,
// principal point, two of radial distortion), the 3 of its point, and its weight; parameter j of observation i is packed[j * p + i].
#define CAMERA 11
#define PARAMETERS 15

extern "C" __global__ void pack(const double* cameras, const double* points, const double* weights, const int* observed, double* packed,
                                int p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p) return;
    for (int j = 0; j < CAMERA; j++) packed[j * p + i] = cameras[observed[2 * i] * CAMERA + j];
    for (int j = 0; j < 3; j++) packed[(CAMERA + j) * p + i] = points[observed[2 * i + 1] * 3 + j];
    packed[(PARAMETERS - 1) * p + i] = weights[i];
}

// What is seen less what was measured, times the weight: error[2 * i] and the entry after it.
extern "C" __global__ void reprojection(const double* packed, const double* measured, double* error, int p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p) return;
    double rx = packed[i], ry = packed[p + i], rz = packed[2 * p + i];
    double x = packed[11 * p + i] - packed[3 * p + i], y = packed[12 * p + i] - packed[4 * p + i], z = packed[13 * p + i] - packed[5 * p + i];
    double square = rx * rx + ry * ry + rz * rz;
    double sx, sy, sz;
    if (square != 0.0) {
        double angle = sqrt(square), c = cos(angle), s = sin(angle);
        double ax = rx / angle, ay = ry / angle, az = rz / angle;
        double along = (ax * x + ay * y + az * z) * (1.0 - c);
        sx = x * c + (ay * z - az * y) * s + ax * along;
        sy = y * c + (az * x - ax * z) * s + ay * along;
        sz = z * c + (ax * y - ay * x) * s + az * along;
    } else {
        sx = x + ry * z - rz * y;
        sy = y + rz * x - rx * z;
        sz = z + rx * y - ry * x;
    }
    double u = sx / sz, v = sy / sz, r = u * u + v * v;
    double scale = (1.0 + packed[9 * p + i] * r + packed[10 * p + i] * r * r) * packed[6 * p + i];
    double weight = packed[14 * p + i];
    error[2 * i] = weight * (u * scale + packed[7 * p + i] - measured[2 * i]);
    error[2 * i + 1] = weight * (v * scale + packed[8 * p + i] - measured[2 * i + 1]);
}

extern "C" __global__ void weight_error(const double* weights, double* error, int p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p) error[i] = 1.0 - weights[i] * weights[i];
}

// The Jacobian in compressed rows: two rows an observation, from the derivatives of its two errors, then one row a weight.
extern "C" __global__ void compressed_rows(const double* first, const double* second, const double* dweight, const int* observed, int* rows,
                                           int* columns, double* values, int cameras, int points, int p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p) return;
    for (int row = 0; row < 2; row++) {
        int begin = (2 * i + row) * PARAMETERS;
        rows[2 * i + row] = begin;
        for (int j = 0; j < PARAMETERS; j++) {
            int column = j < CAMERA ? observed[2 * i] * CAMERA + j
                       : j < CAMERA + 3 ? cameras * CAMERA + observed[2 * i + 1] * 3 + j - CAMERA
                       : cameras * CAMERA + points * 3 + i;
            columns[begin + j] = column;
            values[begin + j] = row == 0 ? first[j * p + i] : second[j * p + i];
        }
    }
    int last = 2 * p * PARAMETERS + i;
    rows[2 * p + i] = last;
    columns[last] = cameras * CAMERA + points * 3 + i;
    values[last] = dweight[i];
    if (i == p - 1) rows[3 * p] = last + 1;
}
